# SPDX-License-Identifier: Apache-2.0
"""Contents of a wheel, and its requirements."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages.distribution import FOLDERS, Wheel, build, sources
from tests.support.paths import REPOSITORY

_MESSAGES = "updraft/v1/"

pytestmark = pytest.mark.timeout(600)


def test_the_workspace_builds_four_wheels(wheels: list[Wheel]) -> None:
    assert {wheel.name for wheel in wheels} == set(FOLDERS)


def test_no_wheel_is_or_requires_the_updraft_of_pypi(wheels: list[Wheel]) -> None:
    assert "updraft" not in {wheel.name for wheel in wheels}
    for wheel in wheels:
        ours = {requirement for requirement in wheel.requirements if requirement.startswith("updraft")}
        assert ours == (set() if wheel.name == "updraft-core" else {"updraft-core"}), wheel.name


@pytest.mark.parametrize("distribution", FOLDERS)
def test_a_wheel_has_every_file_of_its_package(wheels: list[Wheel], distribution: str) -> None:
    (wheel,) = (wheel for wheel in wheels if wheel.name == distribution)
    assert {name: text for name, text in wheel.files.items() if not name.startswith(_MESSAGES)} == sources(distribution)


def test_the_core_has_the_messages_of_every_proto_file(wheels: list[Wheel]) -> None:
    (core,) = (wheel for wheel in wheels if wheel.name == "updraft-core")
    protos = [proto.stem for proto in (REPOSITORY / "proto" / _MESSAGES).glob("*.proto")]
    generated = {f"{_MESSAGES}{proto}_pb2.{ending}" for proto in protos for ending in ("py", "pyi")}
    assert protos
    assert {name for name in core.files if name.startswith(_MESSAGES)} == generated | {f"{_MESSAGES}__init__.py"}


def test_a_source_distribution_builds_the_same_wheel(wheels: list[Wheel], tmp_path: Path) -> None:
    from_sources = {wheel.name: wheel.files for wheel in build(tmp_path)}
    assert from_sources == {wheel.name: wheel.files for wheel in wheels}
