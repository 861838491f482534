# SPDX-License-Identifier: Apache-2.0
"""Files, modules, archives and environment variables of an application."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from tests.workers.directories import new_directory
from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers


def _zipped(name: str, files: dict[str, str]) -> str:
    path = new_directory() / name
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return str(path)


def _written(name: str, text: str) -> str:
    path = new_directory() / name
    path.write_text(text)
    return str(path)


@scenario(everyday=True)
def add_py_file(spark: SparkSession) -> Any:
    spark.sparkContext.addPyFile(_written("a_helper.py", "def describe(n):\n    return f'helped {n}'\n"))

    def described(number: int) -> str:
        import a_helper  # type: ignore[import-not-found]

        return str(a_helper.describe(number))

    return numbers(spark, 20).map(described).collect()


@scenario()
def add_py_file_of_a_package(spark: SparkSession) -> Any:
    inner = "def describe(n):\n    return f'packed {n}'\n"
    spark.sparkContext.addPyFile(_zipped("a_package.zip", {"a_package/__init__.py": "", "a_package/inner.py": inner}))

    def described(number: int) -> str:
        from a_package import inner  # type: ignore[import-not-found]

        return str(inner.describe(number))

    return numbers(spark, 20).map(described).collect()


@scenario()
def add_file(spark: SparkSession) -> Any:
    spark.sparkContext.addFile(_written("a_table.txt", "a table"))

    def read(number: int) -> str:
        return Path(SparkFiles.get("a_table.txt")).read_text() + str(number)

    return numbers(spark, 20).map(read).collect()


@scenario()
def add_file_between_jobs(spark: SparkSession) -> Any:
    """Add a file between two jobs, so that workers that Spark reuses have to receive it."""

    def names(number: int) -> list[str]:
        return sorted(path.name for path in Path(SparkFiles.getRootDirectory()).glob("later_*"))

    found = []
    for number in range(3):
        spark.sparkContext.addFile(_written(f"later_{number}.txt", "text"))
        found.append(numbers(spark, 2, 2).map(names).collect())
    return found


@scenario()
def add_directory(spark: SparkSession) -> Any:
    directory = new_directory() / "a_directory"
    (directory / "inner").mkdir(parents=True)
    (directory / "inner" / "file.txt").write_text("in a directory")
    spark.sparkContext.addFile(str(directory), recursive=True)

    def read(number: int) -> str:
        return Path(SparkFiles.get("a_directory"), "inner", "file.txt").read_text()

    return numbers(spark, 2).map(read).collect()


@scenario()
def add_archive(spark: SparkSession) -> Any:
    spark.sparkContext.addArchive(_zipped("an_archive.zip", {"data/words.txt": "some words"}) + "#unpacked")

    def read(number: int) -> str:
        return Path(SparkFiles.get("unpacked"), "data", "words.txt").read_text()

    return numbers(spark, 2).map(read).collect()


@scenario()
def files_that_open_with_spark_files_in_a_closure(spark: SparkSession) -> Any:
    spark.sparkContext.addFile(_written("numbers.txt", "1 2 3"))

    def loaded(part: Any) -> Any:
        with Path(SparkFiles.get("numbers.txt")).open() as file:
            known = list(map(int, file.read().split()))
        return [sum(known) + number for number in part]

    return numbers(spark, 10).mapPartitions(loaded).collect()


@scenario(everyday=True)
def environment(spark: SparkSession) -> Any:
    names = ("MODEL_SIZE", "PYTHONHASHSEED", "NO_SUCH_VARIABLE")
    return numbers(spark, 2).map(lambda n: [os.environ.get(name) for name in names]).first()


@scenario()
def environment_that_a_job_sets(spark: SparkSession) -> Any:
    environment = spark.sparkContext.environment
    environment["WORD_OF_A_JOB"] = "first"
    try:
        first = numbers(spark, 2).map(lambda n: os.environ.get("WORD_OF_A_JOB")).collect()
        environment["WORD_OF_A_JOB"] = "second"
        return first, numbers(spark, 2).map(lambda n: os.environ.get("WORD_OF_A_JOB")).collect()
    finally:
        del environment["WORD_OF_A_JOB"]


@scenario()
def hashes_of_texts(spark: SparkSession) -> Any:
    return numbers(spark, 5).map(lambda n: hash(f"text {n}")).collect()


@scenario()
def random_numbers_with_a_seed(spark: SparkSession) -> Any:
    def drawn(index: int, part: Any) -> Any:
        import random

        generator = random.Random(index)
        return [generator.random() for _ in part]

    return numbers(spark, 9).mapPartitionsWithIndex(drawn).collect()


@scenario()
def scratch_files(spark: SparkSession) -> Any:
    def through_a_file(part: Any) -> Any:
        import tempfile

        with tempfile.TemporaryFile("w+") as file:
            file.writelines(f"{number}\n" for number in part)
            file.seek(0)
            return [int(line) for line in file]

    return numbers(spark, 100).mapPartitions(through_a_file).sum()
