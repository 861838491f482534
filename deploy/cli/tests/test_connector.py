# SPDX-License-Identifier: Apache-2.0
import re

from tests.support.paths import REPOSITORY

from updraft_cli.connector import SETTINGS

_HEADING = re.compile(r"^### `(spark\.updraft\.[A-Za-z.]+)`$", re.MULTILINE)


def test_the_settings_are_those_that_the_connector_has() -> None:
    reference = (REPOSITORY / "docs/reference/connector.md").read_text()
    assert set(_HEADING.findall(reference)) == SETTINGS
