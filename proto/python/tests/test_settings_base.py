# SPDX-License-Identifier: Apache-2.0
from typing import Any, Literal

import pytest
from pydantic import ValidationError

from updraft.service.settings import Settings, reference_page, reference_table, setting


class Example(Settings):
    """An example."""

    size_bytes: int = setting("How large it may be.", default=10, unit="bytes", ge=1, le=99)
    careful: bool = setting("Whether to be careful.", default=False, common=True)
    colour: Literal["red", "green"] = setting("Its colour.", default="red")
    path: str | None = setting("Where it lies.", default=None)


def test_a_setting_is_declared_once_and_shown_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPDRAFT_SIZE_BYTES", "20")
    assert Example().size_bytes == 20
    assert Example.model_fields["size_bytes"].description == "How large it may be. [bytes]"


def test_the_reference_table_says_option_variable_default_check_and_meaning() -> None:
    lines = reference_table(Example).splitlines()
    assert (
        lines[2]
        == "| `--size-bytes` | `UPDRAFT_SIZE_BYTES` | `10` | bytes, at least 1, at most 99 | How large it may be. |"
    )
    assert lines[3] == "| `--careful` | `UPDRAFT_CAREFUL` | off | flag | Whether to be careful. |"
    assert lines[4] == "| `--colour` | `UPDRAFT_COLOUR` | `red` | `red` or `green` | Its colour. |"
    assert lines[5] == "| `--path` | `UPDRAFT_PATH` | none | text | Where it lies. |"


def test_the_reference_page_has_the_common_settings_first_and_each_once() -> None:
    _, common, others = reference_page("example", Example).split("\n## ")
    assert common.startswith("Common settings")
    assert [line.split("`")[1] for line in common.splitlines() if "`--" in line] == ["--careful"]
    assert [line.split("`")[1] for line in others.splitlines() if "`--" in line] == [
        "--size-bytes",
        "--colour",
        "--path",
    ]


@pytest.mark.parametrize("values", [{"size_bytes": 0}, {"colour": "blue"}, {"size": 3}])
def test_a_bad_value_and_an_unknown_name_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Example(**values)
