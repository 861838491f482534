# SPDX-License-Identifier: Apache-2.0
"""Errors of a service that the chart has set up name the chart's values."""

import pytest

from updraft.errors import LimitError, UserError
from updraft.service.chart_values import ChartValues

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
    assert ChartValues("writer", _VALUES.get).named(text) == named
    assert ChartValues("", _VALUES.get).named(text) == text


def test_errors_of_the_service_name_values_and_those_of_functions_stay() -> None:
    values = ChartValues("writer", _VALUES.get)
    with pytest.raises(LimitError) as limit, values.in_errors():
        raise LimitError("raise --max-files")
    assert limit.value.message == "raise writer.settings.maxFiles of the chart"
    with pytest.raises(UserError) as users, values.in_errors():
        raise UserError("my script has no option --max-files")
    assert users.value.message == "my script has no option --max-files"
