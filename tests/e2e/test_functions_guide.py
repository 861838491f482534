# SPDX-License-Identifier: Apache-2.0
"""Guide docs/guides/registered-functions.md, as written: its code, its queries and their output."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from tests.e2e.named import before_tables
from tests.support.paths import EXAMPLES, REPOSITORY
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, another_session

_PAGE = (REPOSITORY / "docs/guides/registered-functions.md").read_text()
_QUERIES = re.findall(r"```sql\n(.*?)\n```\n```text\n(.*?)```", _PAGE, re.DOTALL)
_CODE = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def session(spark: SparkSession, stock_only: bool) -> Iterator[SparkSession]:
    """Return the session of a user who has followed the page so far."""
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with (
        mock.patch.dict(os.environ, PYTHONPATH=str(EXAMPLES)),
        LocalPool(arguments=("--functions", "shop")) as pool,
        another_session(spark) as session,
    ):
        session.conf.set(ENDPOINT, pool.tcp_endpoint)
        session.conf.set("spark.sql.catalog.updraft", "io.updraft.spark.FunctionCatalog")
        yield session


def test_every_query_of_the_page_has_what_it_prints() -> None:
    assert len(_QUERIES) == _PAGE.count("```sql") == 6


@pytest.mark.parametrize(("query", "printed"), _QUERIES, ids=range(len(_QUERIES)))
def test_a_query_prints_what_the_page_shows(
    session: SparkSession, query: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with before_tables(session) as catalog:
        session.sql(query.replace("LATERAL updraft.default.", f"LATERAL {catalog}")).show(truncate=False)
    assert capsys.readouterr().out.strip() == printed.strip()


def test_the_code_of_the_page_runs(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    declared, *used = _CODE
    functions = re.split(r"\n\n+", declared.strip())[1:]
    assert all(function in (EXAMPLES / "shop.py").read_text() for function in functions)
    with before_tables(session) as catalog:
        for code in used:
            written = code.replace("LATERAL updraft.default.", f"LATERAL {catalog}")
            exec(compile(written, "registered-functions.md", "exec"), {"spark": session})
    sys.modules.pop("shop", None)
