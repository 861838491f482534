# SPDX-License-Identifier: Apache-2.0
"""Guide docs/guides/models.md: its code is that of its examples, and a migrated job gets the same answers as before."""

from __future__ import annotations

import ast
import importlib
import os
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.paths import EXAMPLES, REPOSITORY
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, another_session

_PAGE = (REPOSITORY / "docs/guides/models.md").read_text()
_WRITTEN, _BEFORE, _MOVED, _AFTER = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)
(_QUERY,) = re.findall(r"```sql\n(.*?)```", _PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def pool(stock_only: bool) -> Iterator[LocalPool]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with (
        mock.patch.dict(os.environ, PYTHONPATH=str(EXAMPLES)),
        LocalPool(arguments=("--functions", "digits,moved_digits")) as pool,
    ):
        yield pool


@pytest.fixture(scope="module")
def session(spark: SparkSession, pool: LocalPool) -> Iterator[SparkSession]:
    """Return the session of a user who has followed the page so far."""
    with another_session(spark) as session:
        session.conf.set(ENDPOINT, pool.tcp_endpoint)
        session.conf.set("spark.sql.catalog.updraft", "io.updraft.spark.FunctionCatalog")
        yield session


@pytest.fixture(scope="module")
def pictures(session: SparkSession) -> DataFrame:
    """Return scikit-learn's pictures in eight partitions."""
    from sklearn.datasets import load_digits

    pixels, _ = load_digits(return_X_y=True)
    frame = session.createDataFrame([(row.tolist(),) for row in pixels], "pixels array<double>")
    frame = frame.repartition(8).cache()
    frame.createOrReplaceTempView("pictures")
    return frame


@pytest.mark.parametrize(("code", "example"), [(_WRITTEN, "digits.py"), (_MOVED, "moved_digits.py")])
def test_the_code_of_the_page_is_that_of_its_example(code: str, example: str) -> None:
    written = {ast.dump(statement) for statement in ast.parse((EXAMPLES / example).read_text()).body}
    assert {ast.dump(statement) for statement in ast.parse(code).body} <= written


def test_a_job_moves_in_five_lines_beside_a_decorator() -> None:
    code = re.sub(r'^ *""".*"""$', "", _MOVED, flags=re.MULTILINE)
    decorator, *lines = filter(str.strip, code.splitlines())
    assert decorator.startswith("@function(")
    assert len(lines) == 5


@pytest.mark.timeout(300)
def test_a_job_that_moves_gets_the_answers_that_it_had(
    session: SparkSession, pictures: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    moved_digits = importlib.import_module("moved_digits")
    job: dict[str, Any] = {"make_predict_fn": moved_digits.make_predict_fn, "pictures": pictures}
    answers = {}
    for code in (_BEFORE, _AFTER):
        exec(compile(code, "models.md", "exec"), job)
        answers[code] = [row.digit for row in job["answers"].collect()]
    assert answers[_BEFORE] == answers[_AFTER]
    assert len(answers[_AFTER]) == 1797


@pytest.mark.timeout(300)
def test_sql_finds_the_model_which_is_loaded_once_for_all_tasks(
    session: SparkSession, pictures: DataFrame, pool: LocalPool
) -> None:
    counted = session.sql(_QUERY).collect()
    assert [row.digit for row in counted] == list(range(10))
    assert sum(row.pictures for row in counted) == 1797
    # One for each of the two functions.
    assert len(pool.models()) == 2


def test_rows_that_the_model_refuses_fail_their_own_query_alone(session: SparkSession, pictures: DataFrame) -> None:
    with pytest.raises(PySparkException, match="is expecting 64 features"):
        session.sql("SELECT updraft.default.digit(slice(pixels, 1, 2)) FROM pictures").collect()
    assert session.sql("SELECT updraft.default.digit(pixels) FROM pictures").count() == 1797
