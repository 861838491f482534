# SPDX-License-Identifier: Apache-2.0
"""Saved notebooks have the outputs of a whole run and working links, and nothing of the machine that ran them."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from tests.docs.markdown import Page
from tests.notebooks.notebook import code_cells, notebooks, read, tidy

_PASSWORD = re.compile(r"://[^/\s\"'@]+:[^/\s\"'@]+@")
_OF_A_MACHINE = re.compile(r"/(?:home|root|work|Users)/|ipykernel_\d|/tmp/updraft-\w+-[a-z0-9_]{8}/")
_SECRET_LINK = "http://updraft:secret@127.0.0.1:9825/status"


@pytest.fixture(params=notebooks(), ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_there_are_eight() -> None:
    assert {path.stem for path in notebooks()} == {
        *("first-udf", "own-package", "crash-and-cancel", "per-group-models"),
        *("transformer-model", "streaming", "write-and-read", "functions-from-sql"),
    }


def test_a_notebook_is_valid_and_was_saved_after_a_whole_run(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run `make notebooks`"
    assert sum(bool(cell.outputs) for cell in cells) >= 3


def test_nothing_of_the_machine_is_saved(path: Path) -> None:
    text = path.read_text()
    assert _PASSWORD.findall(text) == []
    assert _OF_A_MACHINE.findall(text) == []
    for cell in code_cells(read(path)):
        assert tidy(cell.outputs) == cell.outputs


def test_links_of_a_notebook_lead_somewhere(path: Path, tmp_path: Path) -> None:
    texts = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    (tmp_path / "page.md").write_text(texts)
    links = Page(tmp_path / "page.md").relative_links
    assert [problem for link in links if (problem := Page(path).problem(link))] == []


def test_a_link_with_a_password_is_never_saved() -> None:
    shown = {"text/html": f'<a href="{_SECRET_LINK}">', "text/plain": "LocalPool"}
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("execute_result", data=shown)])
    assert _PASSWORD.search(_SECRET_LINK)
    assert "secret" not in str(tidy(cell.outputs))


def test_what_differs_between_runs_is_not_saved() -> None:
    plan = "FlightEvalPython [f(id)#29L], endpoint=grpc+unix:///tmp/updraft-pool-od5dhwwd/service.sock\n"
    log = "WARN Utils: a line of Spark's\nupdraft: the pool has loaded rates.py again\n"
    new_output = nbformat.v4.new_output
    progress = new_output("display_data", data={"text/plain": "updraft: 5 rows, 2 of 2 workers busy"})
    outputs = [
        *(new_output("stream", name="stdout", text=plan), progress, new_output("stream", name="stderr", text=log)),
    ]
    assert [output.text for output in tidy(outputs)] == [
        "FlightEvalPython [f(id)], endpoint=grpc+unix:///tmp/updraft-pool-.../service.sock\n",
        "updraft: the pool has loaded rates.py again\n",
    ]
