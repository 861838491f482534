# SPDX-License-Identifier: Apache-2.0
"""Configurations of a case: stock PySpark in each of its variants, no UDF at all, and a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_PIPELINED = "spark.python.udf.pipelined.enabled"
_COLUMNAR_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


@dataclass(frozen=True)
class Variant:
    """Configuration of one Spark. Spark reads `pipelined` when its environment starts, so variants cannot share a JVM.

    `needs_vectors` means that the variant equals another variant unless Spark can pass vectors to the function.
    """

    name: str
    connector: bool = False
    runs_udf: bool = True
    needs_vectors: bool = False
    confs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_stock(self) -> bool:
        """Whether this is a stock configuration that Updraft has to beat."""
        return not self.connector and self.runs_udf


def _stock(name: str, *, pipelined: str, columnar: str) -> Variant:
    confs = {_PIPELINED: pipelined, _COLUMNAR_INPUT: columnar}
    return Variant(name, confs=confs, needs_vectors=columnar == "true")


VARIANTS = [
    Variant("no-udf", runs_udf=False),
    _stock("stock-sync-columnar", pipelined="false", columnar="true"),
    _stock("stock-sync-rows", pipelined="false", columnar="false"),
    _stock("stock-pipelined-columnar", pipelined="true", columnar="true"),
    _stock("stock-pipelined-rows", pipelined="true", columnar="false"),
    Variant("updraft", connector=True),
    Variant("updraft-unix", connector=True),
    Variant("updraft-loopback", connector=True),
]
# The smallest set of variants that shows whether a change makes UDFs faster or slower.
QUICK = ("stock-sync-rows", "stock-pipelined-rows", "updraft")
