# SPDX-License-Identifier: Apache-2.0
"""Notebook of the documentation, run from scratch in a real kernel, with outputs that are equal on every machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.support.carried_jar import carry_jar
from tests.support.paths import PYTHON, REPOSITORY

FOLDER = REPOSITORY / "docs/examples/notebooks"
VARIES = "varies"
"""Tag of a cell whose output has parts that differ between runs, such as the line of a temporary file."""
_CELL_SECONDS = 240
_MIME_OF_TEXT = "text/plain"
_PROGRESS = "updraft: "
# Noise that differs between two runs, and its replacement.
_NOISE = (
    (re.compile(r"/tmp/(updraft-\w+?)-[a-z0-9_]{8}/"), r"/tmp/\1-.../"),
    (re.compile(r"://[^/@\s\"']+@"), "://"),
    (re.compile(r"/tmp/ipykernel_\d+/\d+\.py:\d+"), "<this cell>"),
    (re.compile(r"(?<=[\w>\])])#\d+L?"), ""),
    (re.compile(r"(?<=\w)@[0-9a-f]{6,8}\b"), ""),
    (re.compile(r", \[plan_id=\d+\]"), ""),
    # Spark cuts a long path.
    (re.compile(r"Location: .*?(?=, PartitionFilters)"), "Location: ..."),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)


def notebooks() -> list[Path]:
    """Return the paths of all notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> Any:
    """Return a notebook as it is saved."""
    return nbformat.read(path, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    """Return the cells that run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def run(path: Path, directory: Path) -> Any:
    """Run a notebook in a kernel of this Python and an empty directory; return it with tidy outputs.

    Raises:
        CellExecutionError: A cell failed.
    """
    notebook = read(path)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    site = carry_jar(directory / "site").parent
    work = directory / "work"
    work.mkdir()
    client = NotebookClient(
        notebook, timeout=_CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(work)}}
    )
    # Stock PySpark's workers are the first Python on PATH, as in an activated environment.
    path_of_programs = f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}"
    client.execute(env={**os.environ, "PYTHONPATH": str(site), "PATH": path_of_programs})
    for cell in code_cells(notebook):
        cell.metadata = {"tags": cell.metadata.get("tags", [])} if cell.metadata.get("tags") else {}
        cell.outputs = tidy(cell.outputs)
    notebook.metadata = read(path).metadata
    return notebook


def tidy(outputs: list[Any]) -> list[Any]:
    """Return a cell's outputs without progress, Spark's log and everything that differs between two runs."""
    kept: list[Any] = []
    for output in outputs:
        if output.output_type == "stream":
            _add_stream(kept, output.name, output.text)
        elif not output.data.get(_MIME_OF_TEXT, "").startswith(_PROGRESS):
            data = {kind: _without_noise(text) for kind, text in output.data.items()}
            kept.append(nbformat.from_dict({**output, "data": data}))
    for output in kept:
        if output.output_type == "stream":
            output.text = _without_noise(output.text)
    return kept


def _add_stream(kept: list[Any], name: str, text: str) -> None:
    if name == "stderr":
        # The rest is the log of Spark's JVM.
        text = "".join(line for line in text.splitlines(keepends=True) if line.startswith(_PROGRESS))
    if not text:
        return
    if kept and kept[-1].output_type == "stream" and kept[-1].name == name:
        kept[-1].text += text
    else:
        kept.append(nbformat.v4.new_output("stream", name=name, text=text))


def _without_noise(text: str) -> str:
    for pattern, replacement in _NOISE:
        text = pattern.sub(replacement, text)
    return text
