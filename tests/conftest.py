# SPDX-License-Identifier: Apache-2.0
"""What PySpark itself warns of is no finding about Updraft, and what an older one lacks skips a test."""

from __future__ import annotations

import pytest

from tests.support.kinds_of_spark import supply_what_is_missing

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
