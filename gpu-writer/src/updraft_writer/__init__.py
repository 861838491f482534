# SPDX-License-Identifier: Apache-2.0
"""The writer service: encodes Arrow batches as Parquet or ORC and stores them, within a quota of bytes."""
