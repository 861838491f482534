# SPDX-License-Identifier: Apache-2.0
"""Jars of the connector, beside this file in `jars/`; `updraft.spark.jar` finds them."""
