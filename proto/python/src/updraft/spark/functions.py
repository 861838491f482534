# SPDX-License-Identifier: Apache-2.0
"""Calls of a pool's registered functions from the DataFrame API, in a classic session and over Spark Connect.

    from updraft.spark import functions as U

    frame.select(U.call("pricing.discount", "price", F.lit(20.0)))

The session names the catalog: `spark.sql.catalog.updraft = io.updraft.spark.FunctionCatalog`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def call(
    name: str, *arguments: Column | str, version: str = "", pool: str = "default", catalog: str = "updraft"
) -> Column:
    """Return a column of the function's results, one for each row, or, for an aggregate, one for each group.

    `name` is the function's name, with its dots. `arguments` are columns or their names, in the order of the signature;
    Spark casts them to the signature's types if the cast changes no value. Without `version`, the pool chooses one.
    `pool` is a namespace of `catalog`: `default` is the pool of `spark.updraft.udf.endpoint`.
    """
    from pyspark.sql import functions

    parts = [catalog, pool, *name.split(".")]
    if version:
        parts[-1] += f"@{version}"
    return functions.call_function(".".join(_quoted(part) for part in parts), *arguments)


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"
