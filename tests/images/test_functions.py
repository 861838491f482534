# SPDX-License-Identifier: Apache-2.0
"""Image of docs/functions.md: the pool's image, with functions that its Python imports."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator

import pytest

from tests.images.image import Image, opened
from tests.support.functions_page import PAGE, VERSION_OF_THE_WHEEL, step, unpacked_wheel
from tests.support.page import block
from tests.support.paths import VERSION

_REGISTRY, _HERE = "registry.example/data/", "localhost/"
_POOL, _OURS = f"{_HERE}updraft-pool:{VERSION}", f"{_HERE}my-functions:{VERSION_OF_THE_WHEEL}"
_SECONDS = 300


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    directory = tmp_path_factory.mktemp("image")
    module = unpacked_wheel(directory, into=directory / "my_functions/functions" / VERSION_OF_THE_WHEEL)
    (module / "Dockerfile").write_text(block(PAGE, "dockerfile").replace(_REGISTRY, _HERE))
    command = shlex.split(step("buildah build").text.replace(_REGISTRY, _HERE))
    ran = subprocess.run(command, cwd=module, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr
    try:
        with opened(_OURS) as image:
            yield image
    finally:
        subprocess.run(["buildah", "rmi", _OURS], check=False, capture_output=True, timeout=_SECONDS)


def test_functions_are_where_the_values_of_the_page_look_for_them(image: Image) -> None:
    path = f"/opt/functions/{VERSION_OF_THE_WHEEL}"
    assert f"{{name: PYTHONPATH, value: {path}}}" in block(PAGE, "yaml", "image:")
    assert (image.root / path.lstrip("/") / "my_functions.py").is_file()


def test_it_starts_as_the_pools_image_does(image: Image) -> None:
    with opened(_POOL) as pool:
        for key in ("User", "Entrypoint", "Cmd", "Env"):
            assert image.config[key] == pool.config[key]


def test_everybody_may_read_them(image: Image) -> None:
    """Workers run as a user of their own."""
    for path in (image.root / "opt/functions").rglob("*"):
        assert path.stat().st_mode & 0o004, path
