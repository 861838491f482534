# SPDX-License-Identifier: Apache-2.0
"""Publish the documentation site that `make docs-site` built: `make publish-site`.

The branch gh-pages holds a folder for each version. A page's switcher reads the list of versions, and the front page
leads to the newest one. Publishing a version again replaces its folder.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from docs_site import REPOSITORY, SITE, front_page, switcher

BRANCH = "gh-pages"
_AUTHOR = ("-c", "user.name=Updraft releases", "-c", "user.email=releases@localhost")


def publish(built: Path, version: str, remote: str, site: str) -> None:
    """Add a built version to the branch of a remote repository.

    Raises:
        CalledProcessError: git failed, for example because somebody else published at the same time.
    """
    with tempfile.TemporaryDirectory() as directory:
        pages = Path(directory)
        _git(pages, "init", "--quiet", f"--initial-branch={BRANCH}")
        _git(pages, "remote", "add", "origin", remote)
        if _git(pages, "ls-remote", "--heads", "origin", BRANCH):
            _git(pages, "fetch", "--quiet", "--depth=1", "origin", BRANCH)
            _git(pages, "reset", "--quiet", "--hard", "FETCH_HEAD")
        shutil.rmtree(pages / version, ignore_errors=True)
        shutil.copytree(built, pages / version)
        versions = sorted((path.name for path in pages.glob("[0-9]*")), key=_parts, reverse=True)
        (pages / "switcher.json").write_text(switcher(versions, site))
        (pages / "index.html").write_text(front_page(versions[0]))
        # GitHub would otherwise leave out folders such as _static.
        (pages / ".nojekyll").touch()
        _git(pages, "add", "--all")
        if _git(pages, "status", "--porcelain"):
            _git(pages, *_AUTHOR, "commit", "--quiet", "--message", f"docs: publish {version}")
            _git(pages, "push", "--quiet", "origin", BRANCH)


def _parts(version: str) -> list[int]:
    return [int(part) if part.isdigit() else -1 for part in version.replace("-", ".").split(".")]


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main() -> None:
    """Publish the version of pyproject.toml."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--remote", required=True, help="repository to push to")
    parser.add_argument("--site", required=True, help="URL under which its branch is published")
    options = parser.parse_args()
    if not options.remote or not options.site:
        parser.error("set SOURCE and SITE")
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    publish(SITE / version, version, options.remote, options.site.rstrip("/"))


if __name__ == "__main__":
    main()
