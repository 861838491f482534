# SPDX-License-Identifier: Apache-2.0
"""Spark with Updraft against stock PySpark: the same query, the same answer."""
