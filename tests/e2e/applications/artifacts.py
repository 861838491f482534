# SPDX-License-Identifier: Apache-2.0
"""Application with its own files, archives, modules, variables and encrypted broadcasts."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Query, Sides
from tests.support.spark import local_spark

CONFS = {
    "spark.master": "local[2]",
    "spark.io.encryption.enabled": "true",
    "spark.executorEnv.MODEL_SIZE": "large",
    "spark.executorEnv.OMP_NUM_THREADS": "3",
    "spark.executorEnv.PATH": "/usr/bin:/bin",
    "spark.executor.pyspark.memory": "8g",
    "spark.files.overwrite": "true",
}


def one_column(function: Callable[[int], str]) -> Query:
    """Return a query that applies the function to a few numbers as a plain UDF."""
    return lambda spark: spark.range(0, 6, 1, 2).select(F.udf(function, "string")("id").alias("value"))


def over_arrow(function: Callable[[int], str]) -> Query:
    def query(spark: SparkSession) -> DataFrame:
        def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield pa.RecordBatch.from_pydict({"value": [function(i) for i in batch.column(0).to_pylist()]})

        return spark.range(0, 6, 1, 2).mapInArrow(mapped, "value string")

    return query


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def zipped(directory: Path, name: str, files: dict[str, str]) -> Path:
    path = directory / name
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def with_module(number: int) -> str:
    import helper  # type: ignore[import-not-found]

    return str(helper.describe(number))


def with_package(number: int) -> str:
    from packed import inner  # type: ignore[import-not-found]

    return str(inner.describe(number))


def with_file(number: int) -> str:
    return Path(SparkFiles.get("table.txt")).read_text() + str(number)


def with_archive(number: int) -> str:
    return Path(SparkFiles.get("environment")).joinpath("data", "words.txt").read_text() + str(number)


def listing(number: int) -> str:
    names = sorted(path.name for path in Path(SparkFiles.getRootDirectory()).iterdir())
    return " ".join(name for name in names if not name.endswith(".jar") and not name.startswith("__pycache__"))


def variables(number: int) -> str:
    names = ("MODEL_SIZE", "OMP_NUM_THREADS", "PYTHONHASHSEED")
    return " ".join(f"{name}={os.environ.get(name)}" for name in names) + f" {hash('a text')}"


def properties(number: int) -> str:
    context = TaskContext.get()
    names = ("team", "spark.jobGroup.id", "spark.job.description")
    return " ".join(f"{name}={context.getLocalProperty(name)}" for name in names)


def address_space(number: int) -> str:
    return str(resource.getrlimit(resource.RLIMIT_AS)[0])


def secret(number: int) -> str:
    return str(TaskContext.get().getLocalProperty("my.secret"))


def prepare(spark: SparkSession, directory: Path) -> None:
    context = spark.sparkContext
    context.addPyFile(str(written(directory, "helper.py", "def describe(n):\n    return f'helped {n}'\n")))
    inner = "def describe(n):\n    return f'packed {n}'\n"
    context.addPyFile(str(zipped(directory, "packed.zip", {"packed/__init__.py": "", "packed/inner.py": inner})))
    context.addFile(str(written(directory, "table.txt", "a table ")))
    archive = zipped(directory, "environment-1.zip", {"data/words.txt": "some words ", "bin/run": "#!/bin/sh\n"})
    context.addArchive(f"{archive}#environment")
    context.setLocalProperty("team", "search")
    context.setLocalProperty("my.secret", "do not tell")
    context.setJobGroup("a group", "a description")


def cases(spark: SparkSession) -> dict[str, Query]:
    variable = spark.sparkContext.broadcast({number: f"known {number}" for number in range(6)})
    large = spark.sparkContext.broadcast(os.urandom(1) * (3 << 20))
    ballast = "x" * (2 << 20)

    def looked_up(number: int) -> str:
        return str(variable.value[number])

    def measured(number: int) -> str:
        return str(len(large.value))

    def heavy(number: int) -> str:
        return f"{len(ballast)} {number}"

    functions = {
        "broadcast": looked_up,
        "large broadcast": measured,
        "large function": heavy,
        "addPyFile of a module": with_module,
        "addPyFile of a package": with_package,
        "addFile": with_file,
        "addArchive": with_archive,
        "directory of files": listing,
        "environment": variables,
        "local properties": properties,
        "spark.executor.pyspark.memory": address_space,
    }
    kinds = {"udf": one_column, "mapInArrow": over_arrow}
    return {f"{name}, {kind}": make(function) for name, function in functions.items() for kind, make in kinds.items()}


def difference(sides: Sides, query: Query) -> str:
    try:
        sides.assert_same(query)
    except AssertionError as error:
        return f"{error}: {error.__cause__}" if error.__cause__ else str(error) or repr(error)
    return ""


def unexpected(sides: Sides, function: Callable[[int], str], start: str) -> str:
    """Return the pool's values if they are not the expected ones."""
    values = [row[0] for row in sides.updraft(one_column(function)).rows]
    return "" if values and all(value.startswith(start) for value in values) else str(values)


def main(endpoint: str, confs: Mapping[str, str]) -> None:
    spark = local_spark("artifacts", connector=True, conf={**CONFS, **confs})
    spark.sparkContext.setLogLevel("FATAL")
    sides = Sides(spark, {"tcp": endpoint}, False)
    with tempfile.TemporaryDirectory() as directory:
        prepare(spark, Path(directory))
        differences = {name: difference(sides, query) for name, query in cases(spark).items()}
        # A cluster keeps the first file with a name.
        if spark.sparkContext._jsc.sc().isLocal():
            second = written(Path(directory) / "second", "table.txt", "another table ")
            spark.sparkContext.addFile(str(second))
            differences["a file with new content"] = difference(sides, one_column(with_file))
            differences["a file with new content, seen"] = unexpected(sides, with_file, "another table ")
        differences["a secret property stays"] = unexpected(sides, secret, "None")
    print(json.dumps(differences))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:]))
