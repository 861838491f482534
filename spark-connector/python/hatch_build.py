# SPDX-License-Identifier: Apache-2.0
"""Build hook that refuses a distribution without a jar of this version for every Spark and Scala."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarsBuildHook(BuildHookInterface):
    """Check of src/updraft_spark/jars before every build."""

    PLUGIN_NAME = "jars"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raise RuntimeError if a jar is missing or a jar has another version."""
        package = Path(self.root) / "src/updraft_spark"
        wanted = {f"updraft-spark-{name}-{self.metadata.version}.jar" for name in self.config["jars"]}
        found = {jar.name for jar in package.glob("jars/*.jar")}
        if version != "editable" and found != wanted:
            raise RuntimeError(f"{package}/jars has {sorted(found)} where {sorted(wanted)} belong: run `make dist`")
