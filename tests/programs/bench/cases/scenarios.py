# SPDX-License-Identifier: Apache-2.0
"""Five shapes from the pull request that brought pipelined UDFs to Spark (apache/spark#55552).

All shapes use pandas UDFs over a range, whose input column stays in the result: a light function, a CPU-bound function,
a function that sleeps, a light function over more rows, and three light functions at once. Each shape runs on one core
with one partition, as in the pull request, and on two cores with two partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.programs.bench.case import MILLION, Case, Scene
from tests.programs.bench.targets import HEAVY, LIGHT, Target

_ROUNDS = 20
_SLEEP_SECONDS = 0.010

Function = Callable[[pd.Series], pd.Series]


def _plus_one(values: pd.Series) -> pd.Series:
    return values + 1


def _doubled(values: pd.Series) -> pd.Series:
    return values * 2


def _minus_one(values: pd.Series) -> pd.Series:
    return values - 1


def _cpu_bound(values: pd.Series) -> pd.Series:
    mixed = values
    for _ in range(_ROUNDS):
        mixed = mixed * 3 - values % 11
    return mixed


def _sleeping(values: pd.Series) -> pd.Series:
    time.sleep(_SLEEP_SECONDS)
    return values + 1


def _query(scene: Scene, functions: Sequence[Function], cores: int) -> DataFrame:
    udfs = [scene.use(F.pandas_udf(function, "bigint", F.PandasUDFType.SCALAR)) for function in functions]
    results = [udf("id").alias(f"x{index}") for index, udf in enumerate(udfs)]
    return scene.numbers(partitions=cores).select("id", *results)


def _case(name: str, title: str, functions: Sequence[Function], *targets: Target, rows: int = MILLION) -> list[Case]:
    """Return the case for one core, with the first target, and for two cores, with the second target."""
    return [
        Case(
            f"{name}_on_{cores}",
            f"{title}, local[{cores}]",
            rows,
            partial(_query, functions=functions, cores=cores),
            vectors=True,
            has_floor=True,
            cores=cores,
            target=target,
        )
        for cores, target in enumerate(targets, start=1)
    ]


_PAIRS = [
    _case("light", "pandas_udf x+1", [_plus_one], Target(speed=1.3), LIGHT),
    _case("cpu_bound", f"{_ROUNDS} rounds of pandas arithmetic", [_cpu_bound], Target(speed=1.25), HEAVY),
    _case("sleeping", "10 ms of sleep per batch", [_sleeping], Target(speed=1.1), HEAVY),
    _case("large", "pandas_udf x+1", [_plus_one], Target(speed=2.0), LIGHT, rows=5 * MILLION),
    _case("three_udfs", "three pandas_udfs", [_plus_one, _doubled, _minus_one], Target(speed=1.6), LIGHT),
]
# List cases with the same number of cores together, because every process restarts Spark when the number changes.
CASES = [case for same_cores in zip(*_PAIRS, strict=True) for case in same_cores]
