# SPDX-License-Identifier: Apache-2.0
"""Spark's own machinery around files that a writer makes; stock `parquet` and `orc` are the oracle."""
