# SPDX-License-Identifier: Apache-2.0
"""Writer of Updraft's version, which pyproject.toml sets, into each file that repeats it.

With --check it only reports the files that contain another version.
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_SOURCE = "pyproject.toml"
_VERSION = r"(\d+\.\d+\.\d+[0-9A-Za-z.+-]*?)"
_OF_A_WHEEL = rf'(?:^version = "|"updraft-[a-z]+(?:\[[a-z]+\])?==){_VERSION}"'
_OF_A_PARENT = rf"<artifactId>updraft-parent</artifactId>\s*<version>{_VERSION}</version>"
_OF_A_JAR = rf"updraft-spark-[0-9.]+_2\.1[23]-{_VERSION}\.jar"
_OF_A_JAR_OR_AN_IMAGE = rf"(?:updraft-spark-[0-9.]+_2\.1[23]-|updraft-pool:){_VERSION}(?:\.jar|(?=\s))"
_PLACES = {
    "proto/python/pyproject.toml": _OF_A_WHEEL,
    "flight-server/pyproject.toml": _OF_A_WHEEL,
    "gpu-writer/pyproject.toml": _OF_A_WHEEL,
    "deploy/cli/pyproject.toml": _OF_A_WHEEL,
    "spark-connector/python/pyproject.toml": _OF_A_WHEEL,
    "spark-connector/pom.xml": _OF_A_PARENT,
    "spark-connector/bundle/pom.xml": _OF_A_PARENT,
    "spark-connector/client/pom.xml": _OF_A_PARENT,
    "spark-connector/spark/pom.xml": _OF_A_PARENT,
    "deploy/helm/updraft/Chart.yaml": rf"^(?:version|appVersion): {_VERSION}$",
    "deploy/compose/compose.yaml": rf"^    image: updraft-[a-z]+:{_VERSION}$",
    "deploy/images/Dockerfile": rf"image\.version={_VERSION} ",
    "deploy/images/Dockerfile.team": rf"^ARG POOL=updraft-pool:{_VERSION}$",
    "README.md": _OF_A_JAR,
    "docs/examples/spark-application.yaml": _OF_A_JAR,
    "docs/examples/spark-submit.sh": _OF_A_JAR,
    "docs/functions.md": rf"updraft-pool:{_VERSION}$",
    "docs/guides/install.md": _OF_A_JAR_OR_AN_IMAGE,
    "docs/guides/writer.md": _OF_A_JAR,
    "docs/guides/vm.md": _OF_A_JAR,
    "docs/guides/standalone.md": _OF_A_JAR,
    "docs/guides/managed-spark-3.5.md": _OF_A_JAR,
    "docs/guides/yarn.md": _OF_A_JAR,
}


def decided(root: Path) -> str:
    """Return the version that pyproject.toml names."""
    return str(tomllib.loads((root / _SOURCE).read_text())["project"]["version"])


def stale(root: Path, version: str, *, write: bool) -> list[str]:
    """Return the files with another version, or without one; with `write`, put this version into them."""
    found = []
    for name, pattern in _PLACES.items():
        path = root / name
        text = path.read_text()
        spelt = re.compile(pattern, re.MULTILINE)
        filled = spelt.sub(lambda match: match[0].replace(match[1], version), text)
        if filled != text or not spelt.search(text):
            found.append(name)
        if write and filled != text:
            path.write_text(filled)
    return found


def main() -> int:
    """Write the version; with --check, return 1 if a file has another one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    only_check = parser.parse_args().check
    version = decided(_ROOT)
    found = stale(_ROOT, version, write=not only_check)
    for name in found:
        print(f"{name}: does not say {version}; run `make versions`" if only_check else f"{name}: written")
    return 1 if only_check and found else 0


if __name__ == "__main__":
    sys.exit(main())
