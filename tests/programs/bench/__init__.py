# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: UDFs and files compared with stock PySpark, and how fast a pool heals (`make bench-udf` and others)."""
