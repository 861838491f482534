# SPDX-License-Identifier: Apache-2.0
"""Each notebook runs from scratch in a real kernel, and prints its saved outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.notebook import VARIES, code_cells, notebooks, read, run

_TIMEOUT_SECONDS = 900


@pytest.mark.timeout(_TIMEOUT_SECONDS)
@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_saved_in_it(path: Path, tmp_path: Path) -> None:
    saved, executed = read(path), run(path, tmp_path)
    assert len(code_cells(executed)) == len(code_cells(saved))
    for before, now in zip(code_cells(saved), code_cells(executed), strict=True):
        if VARIES in before.metadata.get("tags", []):
            assert _kinds(now) == _kinds(before), now.source
        else:
            assert _texts(now) == _texts(before), now.source


def _kinds(cell: Any) -> set[str]:
    return {output.get("name", output.output_type) for output in cell.outputs}


def _texts(cell: Any) -> dict[str, str]:
    """Return the outputs by kind, because two streams of a cell have no order."""
    texts: dict[str, str] = {}
    for output in cell.outputs:
        kind = output.get("name", output.output_type)
        texts[kind] = texts.get(kind, "") + output.get("text", str(output.get("data", "")))
    return texts
