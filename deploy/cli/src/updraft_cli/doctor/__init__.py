# SPDX-License-Identifier: Apache-2.0
"""Checks that find out why a Spark job cannot reach a pool or a writer, in the order in which a task would fail."""
