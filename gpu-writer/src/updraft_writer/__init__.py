# SPDX-License-Identifier: Apache-2.0
"""Writer service, which encodes Arrow batches as Parquet or ORC and stores them, within a quota of bytes."""
