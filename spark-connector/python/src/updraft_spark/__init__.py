# SPDX-License-Identifier: Apache-2.0
"""Jars of the connector, in the folder `jars/` next to this file, where `updraft.spark.jar` finds them."""
