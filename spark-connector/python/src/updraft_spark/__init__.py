# SPDX-License-Identifier: Apache-2.0
"""The connector's jars, beside this file in `jars/`; `updraft.spark.jar` finds them."""
