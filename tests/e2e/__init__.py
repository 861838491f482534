# SPDX-License-Identifier: Apache-2.0
"""Spark with Updraft compared with stock PySpark: the same query, the same answer."""
