# SPDX-License-Identifier: Apache-2.0
"""Java names that Python has looked up are kept.

py4j asks the JVM for every part of a name such as `jvm.org.apache.spark.X` each time that it is used, and for all parts
but the last the JVM searches each of Spark's 300 jars in vain. In a suite of short queries that is two fifths of the
JVM's work, none of it of what the suite compares: it is done by the driver's Python, before a query runs.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView


def keep_java_names() -> None:
    """Ask the JVM once for each name of each view; from now on, in this process."""
    for owner in (JVMView, JavaPackage):
        owner.__getattr__ = _keeping(owner.__getattr__)


def _keeping(look_up: Any) -> Any:
    def keep(self: Any, name: str) -> Any:
        found = look_up(self, name)
        if isinstance(found, JavaClass | JavaPackage):
            # Where Python looks before it asks for `__getattr__`.
            self.__dict__[name] = found
        return found

    return keep
