# SPDX-License-Identifier: Apache-2.0
"""The benchmarks: UDFs and files against stock PySpark, and how soon a pool heals (`make bench-udf` and others)."""
