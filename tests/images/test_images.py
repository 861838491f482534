# SPDX-License-Identifier: Apache-2.0
"""An image's labels are correct, and it contains nothing unnecessary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.chart import CHART
from tests.images.image import Image, normalized, opened
from tests.support.paths import REPOSITORY

_VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
_OCI = "org.opencontainers.image."
_USER = 10001
_MOST_BYTES = {"updraft-pool": 450 << 20, "updraft-writer": 320 << 20}


@pytest.fixture(scope="module", params=_MOST_BYTES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def image(name: str) -> Iterator[Image]:
    with opened(f"localhost/{name}:{_VERSION}") as image:
        yield image


def test_labels_say_what_it_is_and_what_it_was_built_from(name: str, image: Image) -> None:
    labels = image.labels
    assert (labels[_OCI + "title"], labels[_OCI + "version"]) == (name, _VERSION)
    assert labels[_OCI + "licenses"] == "Apache-2.0"
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", labels[_OCI + "revision"])
    assert labels[_OCI + "base.name"]
    assert labels[_OCI + "description"]


def test_the_bill_of_materials_has_every_package_and_no_other(image: Image) -> None:
    document = image.bill_of_materials
    listed = {normalized(part["name"]): part["version"] for part in document["components"]}
    assert document["bomFormat"] == "CycloneDX"
    assert listed == image.packages


def test_packages_are_those_of_the_lock_file(image: Image) -> None:
    locked = (REPOSITORY / "uv.lock").read_text()
    missing = [
        f"{name} {version}"
        for name, version in image.packages.items()
        if f'name = "{name}"\nversion = "{version}"\n' not in locked
    ]
    assert missing == []


def test_it_runs_as_a_user_who_owns_nothing_in_it(image: Image) -> None:
    assert image.config["User"] == f"{_USER}:{_USER}"
    assert [file for file in image.environment.rglob("*") if _is_writable(file)] == []


def test_it_serves_by_default(name: str, image: Image) -> None:
    program = "updraft-server" if name == "updraft-pool" else name
    assert (image.config["Entrypoint"], image.config["Cmd"]) == ([program], ["serve"])
    assert (image.environment / "bin" / program).exists()


def test_it_is_small(name: str, image: Image) -> None:
    assert image.size_bytes <= _MOST_BYTES[name]


def test_a_pool_has_no_jars_and_a_writer_no_spark(image: Image) -> None:
    assert next(image.environment.rglob("*.jar"), None) is None
    assert ("pyspark" in image.packages) is ("updraft-server" in image.packages)


def _is_writable(file: Path) -> bool:
    status = file.lstat()
    return not file.is_symlink() and (status.st_uid == _USER or bool(status.st_mode & 0o002))
