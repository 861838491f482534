# SPDX-License-Identifier: Apache-2.0
"""The writer service: takes Arrow batches, encodes them as Parquet or ORC and stores them, within a quota of bytes."""
