# SPDX-License-Identifier: Apache-2.0
"""Writers of a table's data files: the format's own, Updraft's and Comet's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Variant:
    """Configuration of one Spark.

    Attributes:
        title: name in tables.
        formats: table formats that the variant can write.
        made_by: prefix of the creator's name in the footers of the variant's files.
        extensions: SQL extensions in addition to those of the formats.
        confs: settings of the session.
    """

    title: str
    formats: tuple[str, ...]
    made_by: str
    extensions: tuple[str, ...] = ()
    confs: Mapping[str, str] = field(default_factory=dict)


VARIANTS = {
    "stock": Variant("the format's own", ("delta", "iceberg"), "parquet-mr"),
    "updraft": Variant(
        "Updraft's",
        ("delta", "iceberg"),
        "parquet-cpp",
        extensions=("io.updraft.spark.UpdraftExtensions",),
        confs={"spark.updraft.write.tables": "delta, iceberg", "spark.updraft.write.unsupported": "fail"},
    ),
    "comet": Variant(
        "Comet's",
        ("iceberg",),
        "Apache Iceberg",
        confs={
            "spark.plugins": "org.apache.spark.CometPlugin",
            "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
            "spark.comet.write.iceberg.enabled": "true",
            "spark.memory.offHeap.enabled": "true",
            "spark.memory.offHeap.size": "2g",
        },
    ),
}
