# SPDX-License-Identifier: Apache-2.0
"""docs/functions.md with the programs that it installs, such as pip, which the page's other tests lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dist.conftest import locked, new_environment, typed
from tests.support.functions_page import STEPS, edit, step
from tests.support.page import Kind, shows

pytestmark = pytest.mark.timeout(1800)

_INSTALL, _DEPLOY = "pip install --quiet dist", ("pip wheel", "ls ", "pip install --quiet --no-deps --target")


def test_a_module_is_begun_tested_and_built_with_what_the_page_installs(wheels: Path, tmp_path: Path) -> None:
    """This asks an index for pytest and the build requirements."""
    (tmp_path / "dist").symlink_to(wheels / "dist")
    made = new_environment(tmp_path / "environment")
    typed(step(_INSTALL).text, made, tmp_path, {"PIP_FIND_LINKS": str(wheels / "wheels"), **locked(wheels / "dist")})
    typed(step("updraft new").text, made, tmp_path)
    module = tmp_path / "my_functions"
    for each in STEPS:
        if each.kind is Kind.EDIT:
            edit(module, each)
    for start in ("python -m pytest", *_DEPLOY):
        done = step(start)
        printed = typed(done.text, made, module)
        assert shows(done.shown, printed), printed
    (functions,) = module.glob("functions/*")
    assert (functions / "my_functions.py").read_text() == (module / "my_functions.py").read_text()
