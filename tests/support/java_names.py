# SPDX-License-Identifier: Apache-2.0
"""Cache of Java names that Python has looked up.

py4j asks the JVM for every part of a name such as `jvm.org.apache.spark.X` on each use of the name. For every part but
the last, the JVM searches each of Spark's 300 jars and finds nothing. In a suite of short queries, these lookups take
two fifths of the JVM's time. The cache does not affect comparisons: the driver looks names up before a query runs.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView


def keep_java_names() -> None:
    """Cache the names of each JVM view in this process."""
    for owner in (JVMView, JavaPackage):
        owner.__getattr__ = _keeping(owner.__getattr__)


def _keeping(look_up: Any) -> Any:
    def keep(self: Any, name: str) -> Any:
        found = look_up(self, name)
        if isinstance(found, JavaClass | JavaPackage):
            # Python searches `__dict__` before it calls `__getattr__`.
            self.__dict__[name] = found
        return found

    return keep
