# SPDX-License-Identifier: Apache-2.0
"""Builder of everything that a user installs, in one folder with the SHA-256 sums.

Wheels and source distributions, the connector's jars as a Maven repository, the chart, what the images are built from,
and bills of materials. The same commit gives the same bytes: each file has the time of the commit, and files are sorted
by name.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

_ROOT = Path(__file__).resolve().parents[1]
_CONNECTOR = _ROOT / "spark-connector"
_BUILD_REQUIREMENTS = _ROOT / ".ci/build-requirements.txt"
_GROUP = "io.updraft"
_POM = "http://maven.apache.org/POM/4.0.0"
_SUMS = "SHA256SUMS"
_MODE = 0o644


@dataclass(frozen=True)
class Release:
    """Version of a release, and how and where to build it."""

    version: str
    epoch_seconds: int
    """The time of every file in an archive."""
    uv: str
    into: Path


def python(release: Release) -> None:
    """Build wheels and source distributions, and write the locked versions of their third-party requirements."""
    carried = _CONNECTOR / "python/src/updraft_spark/jars"
    shutil.rmtree(carried, ignore_errors=True)
    carried.mkdir()
    for jar in _jars(release):
        shutil.copyfile(jar, carried / jar.name)
    locked = ("--build-constraints", str(_BUILD_REQUIREMENTS), "--require-hashes", "--out-dir", str(release.into))
    for source in (("--all-packages",), (str(_CONNECTOR / "python"),)):
        _run(release, release.uv, "build", "--quiet", *source, *locked)
    (release.into / ".gitignore").unlink()
    exported = release.into / "constraints.txt"
    # With hashes, pip would also require hashes of our own wheels.
    selected = (
        "--no-default-groups",
        "--all-packages",
        "--all-extras",
        "--no-emit-workspace",
        "--no-header",
        "--no-hashes",
    )
    _run(release, release.uv, "export", "--quiet", "--locked", *selected, "--output-file", str(exported))


def java(release: Release) -> None:
    """Copy the connector for each Spark with its sources and POM, in the layout of a Maven repository."""
    for jar in _jars(release):
        artifact = jar.name.removesuffix(f"-{release.version}.jar")
        folder = release.into / "maven" / _GROUP.replace(".", "/") / artifact / release.version
        folder.mkdir(parents=True)
        shutil.copyfile(jar, folder / jar.name)
        name = artifact.removeprefix("updraft-spark-")
        (folder / f"{jar.stem}-sources.jar").write_bytes(_sources(release, name))
        (folder / f"{jar.stem}.pom").write_bytes(_pom(release, artifact, name))


def chart(release: Release) -> None:
    """Package the chart as `helm package` does, but with the commit's time for all files."""
    with tempfile.TemporaryDirectory() as folder:
        helm = Path(sys.executable).with_name("helm")
        _run(release, str(helm), "package", str(_ROOT / "deploy/helm/updraft"), "--destination", folder)
        (package,) = Path(folder).glob("*.tgz")
        with tarfile.open(package) as archive:
            files = {
                member.name: opened.read() for member in archive if (opened := archive.extractfile(member)) is not None
            }
    _write_tar(release, package.name, files)


def images(release: Release) -> None:
    """Pack the files that the images are built from: the Dockerfiles, and the files that .dockerignore lets through."""
    wanted = (".dockerignore", "pyproject.toml", "uv.lock", "proto", "flight-server", "gpu-writer", "deploy/cli")
    tracked = _tracked(*wanted, "deploy/images", "LICENSE")
    prefix = f"updraft-images-{release.version}"
    files = {f"{prefix}/{name}": (_ROOT / name).read_bytes() for name in tracked if "tests" not in Path(name).parts}
    _write_tar(release, f"{prefix}.tar.gz", files)


def bills(release: Release) -> None:
    """Write CycloneDX bills of materials, without the serial number and the time, which differ with each run."""
    made = {"python": _ROOT / "build/audit/python.cdx.json", "java": _ROOT / "build/audit/java.cdx.json"}
    stamp = datetime.fromtimestamp(release.epoch_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for language, path in made.items():
        bill = json.loads(path.read_text())
        bill.pop("serialNumber", None)
        bill["metadata"]["timestamp"] = stamp
        target = release.into / f"updraft-{release.version}-{language}.cdx.json"
        target.write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n")


def sums(release: Release) -> None:
    """Write the SHA-256 sums of everything, as `sha256sum --check` reads them."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(release.into)}\n"
        for path in sorted(release.into.rglob("*"))
        if path.is_file()
    ]
    (release.into / _SUMS).write_text("".join(lines))


def _jars(release: Release) -> list[Path]:
    """Return the connector's jar for each Spark and Scala that it is built against, newest first."""
    target = _CONNECTOR / "bundle/target"
    return [target / f"updraft-spark-{name}-{release.version}.jar" for name in _profile_folders()]


def _sources(release: Release, name: str) -> bytes:
    """Return the sources that are compiled for a Spark and a Scala, by their packages."""
    profiles = _profile_folders()[name]
    folders = ["proto", "spark-connector/client/src/main/java", *(f"spark-connector/spark/{name}" for name in profiles)]
    content = io.BytesIO()
    stamp = datetime.fromtimestamp(release.epoch_seconds, UTC).timetuple()[:6]
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        members = {
            name.removeprefix(f"{folder}/"): name
            for folder in folders
            for name in _tracked(folder)
            if folder != "proto" or name.endswith(".proto")
        }
        for member, name in sorted({**members, "META-INF/LICENSE": "LICENSE"}.items()):
            entry = zipfile.ZipInfo(member, stamp)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, _MODE << 16
            archive.writestr(entry, (_ROOT / name).read_bytes())
    return content.getvalue()


def _profile_folders() -> dict[str, list[str]]:
    """Return the folders of sources of each jar, as the profiles of the connector's pom.xml name them."""
    profiles = ElementTree.parse(_CONNECTOR / "pom.xml").getroot().findall(f"{{{_POM}}}profiles/{{{_POM}}}profile")
    found = {}
    for profile in profiles:
        properties = profile.find(f"{{{_POM}}}properties")
        name = profile.findtext(f"{{{_POM}}}id", "").removeprefix("spark-")
        changed = [entry.text for entry in properties or () if re.search(r"\}sources\.", entry.tag)]
        changed.append(f"scala-{name.split('_')[1]}")
        found[name] = ["src/main/scala", "src/main/resources", *(f"src/main/{folder}" for folder in changed)]
    return found


def _pom(release: Release, artifact: str, name: str) -> bytes:
    """Return the POM of a jar that contains the libraries that Spark lacks."""
    spark, scala = name.split("_")
    project = ElementTree.Element("project", xmlns=_POM)
    fields = {
        "modelVersion": "4.0.0",
        "groupId": _GROUP,
        "artifactId": artifact,
        "version": release.version,
        "packaging": "jar",
        "name": f"Updraft for Spark {spark}, Scala {scala}",
        "description": "Runs the Python UDFs of a Spark session on a pool of workers over Arrow Flight.",
    }
    for field, text in fields.items():
        ElementTree.SubElement(project, field).text = text
    licence = ElementTree.SubElement(ElementTree.SubElement(project, "licenses"), "license")
    ElementTree.SubElement(licence, "name").text = "Apache-2.0"
    ElementTree.SubElement(licence, "url").text = "https://www.apache.org/licenses/LICENSE-2.0"
    developer = ElementTree.SubElement(ElementTree.SubElement(project, "developers"), "developer")
    ElementTree.SubElement(developer, "name").text = "The Updraft maintainers"
    ElementTree.indent(project)
    written: bytes = ElementTree.tostring(project, encoding="UTF-8", xml_declaration=True)
    return written + b"\n"


def _tracked(*paths: str) -> list[str]:
    """Return the files that git tracks below these paths of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *paths], cwd=_ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name]


def _write_tar(release: Release, name: str, files: Mapping[str, bytes]) -> None:
    with (
        (release.into / name).open("wb") as file,
        # By default, the gzip header has the file's name and the current time.
        gzip.GzipFile("", "wb", fileobj=file, mtime=release.epoch_seconds) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member, content in sorted(files.items()):
            entry = tarfile.TarInfo(member)
            entry.size, entry.mtime, entry.mode = len(content), release.epoch_seconds, _MODE
            archive.addfile(entry, io.BytesIO(content))


def _run(release: Release, *command: str) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch_seconds)}
    subprocess.run(command, cwd=_ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)


_PARTS: tuple[Callable[[Release], None], ...] = (python, java, chart, images, bills, sums)


def build(release: Release) -> None:
    """Empty the folder and fill it."""
    shutil.rmtree(release.into, ignore_errors=True)
    release.into.mkdir(parents=True)
    for part in _PARTS:
        print(f"{part.__name__}: {(part.__doc__ or '').splitlines()[0]}", flush=True)
        part(release)


def _committed_seconds() -> int:
    told = os.environ.get("SOURCE_DATE_EPOCH")
    command = ["git", "log", "-1", "--format=%ct"]
    return int(told or subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout)


def _changed() -> str:
    command = ["git", "status", "--porcelain"]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Build the release and list its files."""
    parser = argparse.ArgumentParser(prog="make dist DIST=...", description=__doc__)
    parser.add_argument("--uv", default="uv", help="the program uv")
    parser.add_argument("--into", type=Path, default=_ROOT / "dist", help="the folder, which is emptied first")
    options = parser.parse_args()
    if changed := _changed():
        print(f"not committed, so this is no release:\n{changed}", file=sys.stderr)
    version = str(tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"])
    release = Release(version, _committed_seconds(), options.uv, options.into.absolute())
    build(release)
    for line in (release.into / _SUMS).read_text().splitlines():
        digest, name = line.split(maxsplit=1)
        print(f"{(release.into / name).stat().st_size:>12,}  {digest[:12]}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
