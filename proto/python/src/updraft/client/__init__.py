# SPDX-License-Identifier: Apache-2.0
"""Clients for Python without Spark: write a file through a writer."""
