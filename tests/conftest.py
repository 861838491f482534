# SPDX-License-Identifier: Apache-2.0
"""Warnings and gaps of PySpark that are no finding about Updraft; a pool that two folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.called_pool import called_pool
from tests.support.kinds_of_spark import supply_what_is_missing
from tests.support.pool import LocalPool

_PYSPARKS_OWN = (
    "ignore:PySpark does not yet fully support:FutureWarning",
    "ignore:.*type hints for (pandas|arrow) UDF:UserWarning",
    # py4j leaves its sockets to the garbage collector.
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
)


supply_what_is_missing()


def pytest_configure(config: pytest.Config) -> None:
    for line in _PYSPARKS_OWN:
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def functions_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    with called_pool(tmp_path_factory.mktemp("modules")) as pool:
        yield pool
