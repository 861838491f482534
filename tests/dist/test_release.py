# SPDX-License-Identifier: Apache-2.0
"""Release folder as a whole: complete, with checksums, and identical if built again elsewhere."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.packages.distribution import FOLDERS, Wheel, uv
from tests.support.paths import REPOSITORY, VERSION
from updraft.spark.jars import JARS

_DISTRIBUTIONS = {*FOLDERS, "updraft-spark"}
_JARS = [name for names in dict.fromkeys(map(tuple, JARS.values())) for name in names]
_POM = "{http://maven.apache.org/POM/4.0.0}"


def _sums(folder: Path) -> dict[str, str]:
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def test_every_file_has_its_sum(dist: Path) -> None:
    files = {str(path.relative_to(dist)) for path in dist.rglob("*") if path.is_file()} - {"SHA256SUMS"}
    assert {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in files} == _sums(dist)


def test_nothing_is_missing(dist: Path) -> None:
    expected = {"constraints.txt", f"updraft-{VERSION}.tgz", f"updraft-images-{VERSION}.tar.gz"}
    expected |= {f"updraft-{VERSION}-{language}.cdx.json" for language in ("java", "python")}
    for name in _DISTRIBUTIONS:
        stem = f"{name.replace('-', '_')}-{VERSION}"
        expected |= {f"{stem}.tar.gz", f"{stem}-py3-none-any.whl"}
    for name in _JARS:
        artifact = f"updraft-spark-{name}"
        folder = f"maven/io/updraft/{artifact}/{VERSION}/{artifact}-{VERSION}"
        expected |= {f"{folder}.jar", f"{folder}-sources.jar", f"{folder}.pom"}
    assert set(_sums(dist)) == expected


@pytest.mark.timeout(1800)
def test_another_checkout_of_the_commit_gives_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=REPOSITORY, capture_output=True, text=True).stdout
    assert not changed, f"commit first, so that there is something to compare with:\n{changed}"
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, checkout], check=True)
    built = subprocess.run(["make", "dist"], cwd=checkout, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert _sums(checkout / "dist") == _sums(dist)


@pytest.mark.parametrize("name", sorted(_DISTRIBUTIONS))
def test_a_wheel_says_what_an_index_shows(dist: Path, name: str) -> None:
    (path,) = dist.glob(f"{name.replace('-', '_')}-*.whl")
    metadata = Wheel(path).metadata
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"
    assert all(metadata[field] for field in ("Summary", "Author", "Keywords", "Description-Content-Type"))
    assert str(metadata.get_payload()).count("\n") > 3
    # Wheels of two releases never mix.
    ours = [
        requirement for requirement in Wheel(path).metadata.get_all("Requires-Dist", []) if "updraft" in requirement
    ]
    assert all(f"=={VERSION}" in requirement for requirement in ours)


@pytest.mark.parametrize("name", _JARS)
def test_a_jar_has_its_sources_and_its_pom(dist: Path, name: str) -> None:
    (pom,) = dist.glob(f"maven/io/updraft/updraft-spark-{name}/{VERSION}/*.pom")
    project = ElementTree.parse(pom).getroot()
    coordinates = [project.findtext(f"{_POM}{field}") for field in ("groupId", "artifactId", "version")]
    assert coordinates == ["io.updraft", f"updraft-spark-{name}", VERSION]
    with (
        zipfile.ZipFile(pom.with_suffix(".jar")) as jar,
        zipfile.ZipFile(f"{pom.with_suffix('')}-sources.jar") as sources,
    ):
        names, kept = set(jar.namelist()), set(sources.namelist())
    assert {"META-INF/LICENSE", "META-INF/NOTICE"} <= names
    assert "META-INF/LICENSE" in kept
    # Each Java class has a source file with its name; for generated classes, the .proto is included.
    own = {name for name in names if name.startswith("io/updraft/client/") and name.endswith(".class")}
    assert own
    assert {f"{name.removesuffix('.class').split('$')[0]}.java" for name in own} <= kept
    assert "io/updraft/spark/UpdraftExtensions.scala" in kept
    assert "updraft/v1/exchange.proto" in kept


def test_bills_of_materials_name_what_is_shipped(dist: Path) -> None:
    for language, component in (("python", "grpcio"), ("java", "grpc-netty")):
        bill = json.loads((dist / f"updraft-{VERSION}-{language}.cdx.json").read_text())
        assert bill["bomFormat"] == "CycloneDX"
        assert component in {found["name"] for found in bill["components"]}


def test_the_image_context_is_a_whole_workspace(dist: Path, tmp_path: Path) -> None:
    """The Dockerfile syncs it with `--locked`; `make images` builds the images themselves."""
    with tarfile.open(dist / f"updraft-images-{VERSION}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    context = tmp_path / f"updraft-images-{VERSION}"
    copied = [
        source
        for line in (context / "deploy/images/Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    assert copied
    assert all((context / source).exists() for source in copied)
    checked = uv("lock", "--check", "--offline", cwd=context)
    assert checked.returncode == 0, checked.stderr
    assert not list(context.rglob("tests"))
