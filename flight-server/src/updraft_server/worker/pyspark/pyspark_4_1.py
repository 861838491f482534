# SPDX-License-Identifier: Apache-2.0
"""Adapter to the worker of PySpark 4.1: calls `main`, with the init message in front of the data."""

from updraft_server.worker.pyspark.init_message_before_4_2 import compose_4_1 as compose
from updraft_server.worker.pyspark.pyspark_4_2 import invoke
from updraft_server.worker.pyspark.trailer import TIMINGS_BEFORE_4_2 as TIMINGS

__all__ = ["TIMINGS", "compose", "invoke"]
