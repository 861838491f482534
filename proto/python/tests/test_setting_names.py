# SPDX-License-Identifier: Apache-2.0
"""Errors of a service name settings as they are written: options, values of the chart, or arguments."""

import pytest

from updraft.errors import LimitError, UserError
from updraft.service.setting_names import SettingNames

_VALUES = {"max_files": "settings.maxFiles", "root": "roots"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("raise --max-files of the writer", "raise writer.settings.maxFiles of the chart"),
        ("raise --max-files or --root", "raise writer.settings.maxFiles of the chart or writer.roots of the chart"),
        ("not --max-files-more, nor --other", "not --max-files-more, nor --other"),
    ],
)
def test_an_option_is_named_by_the_value_that_sets_it(text: str, named: str) -> None:
    assert SettingNames("writer", _VALUES.get).named(text) == named
    assert SettingNames("", _VALUES.get).named(text) == text


def test_an_option_is_named_by_the_argument_of_the_function_that_started_the_service() -> None:
    names = SettingNames("local_pool()", _VALUES.get)
    assert names.named("raise --worker-memory-bytes of the pool") == "raise worker_memory_bytes of local_pool()"


def test_errors_of_the_service_name_values_and_those_of_functions_stay() -> None:
    values = SettingNames("writer", _VALUES.get)
    with pytest.raises(LimitError) as limit, values.in_errors():
        raise LimitError("raise --max-files")
    assert limit.value.message == "raise writer.settings.maxFiles of the chart"
    with pytest.raises(UserError) as users, values.in_errors():
        raise UserError("my script has no option --max-files")
    assert users.value.message == "my script has no option --max-files"
