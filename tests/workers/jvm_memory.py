# SPDX-License-Identifier: Apache-2.0
"""Memory of the driver's JVM and of the processes that it has started."""

from __future__ import annotations

from typing import Any

import psutil
from pyspark.sql import SparkSession


def memory_mib(spark: SparkSession) -> dict[str, float]:
    """Return the MiB of live objects and of Netty's buffers in the JVM, and the MiB of the JVM's child processes."""
    jvm: Any = spark._jvm
    # The second collection frees what Spark releases because of the first collection.
    for _ in range(2):
        jvm.java.lang.System.gc()
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    buffers = jvm.io.netty.util.internal.PlatformDependent.usedDirectMemory()
    (java,) = (child for child in psutil.Process().children(recursive=True) if child.name() == "java")
    processes = sum(child.memory_full_info().pss for child in java.children(recursive=True))
    sizes = {"heap": heap, "buffers": buffers, "processes": processes}
    return {name: size / (1 << 20) for name, size in sizes.items()}
