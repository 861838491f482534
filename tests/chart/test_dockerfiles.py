# SPDX-License-Identifier: Apache-2.0
"""Images are built from bases that never change."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import REPOSITORY

_BASE = re.compile(r"^ARG BASE=(\S+)$", re.MULTILINE)
_FROM = re.compile(r"^FROM (\S+)", re.MULTILINE)
_STAGE = re.compile(r"^FROM \S+ AS (\S+)$", re.MULTILINE)


@pytest.mark.parametrize("path", ["deploy/images/Dockerfile", "tests/kube/Dockerfile"])
def test_a_base_is_named_by_its_digest(path: str) -> None:
    text = (REPOSITORY / path).read_text()
    bases = _BASE.findall(text)
    assert bases
    assert all(re.fullmatch(r"\S+:\S+@sha256:[0-9a-f]{64}", base) for base in bases)
    assert set(_FROM.findall(text)) <= {"${BASE}", *_STAGE.findall(text)}


def test_a_base_alone_says_which_python_an_image_has() -> None:
    text = (REPOSITORY / "deploy/images/Dockerfile").read_text()
    assert re.findall(r"python-?:?3\.\d+", _BASE.sub("", text)) == []


def test_the_example_of_a_team_installs_what_the_demos_driver_has() -> None:
    ((name, version),) = re.findall(r"(\S+)==(\S+)", (REPOSITORY / "deploy/images/Dockerfile.team").read_text())
    assert f'name = "{name}"\nversion = "{version}"\n' in (REPOSITORY / "uv.lock").read_text()
