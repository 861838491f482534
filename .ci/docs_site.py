# SPDX-License-Identifier: Apache-2.0
"""Build the documentation site: `make docs-site`.

The pages are plain Markdown, which reads well on a code host. This script copies them into a folder for Sphinx, adds
the sidebar of docs/site.toml, and turns each link to another file into a link to the code host. Sphinx treats a
warning, such as a link to a missing heading, as an error.

    build/docs/site/index.html       leads to the version
    build/docs/site/switcher.json    the versions, for the switcher of each page
    build/docs/site/VERSION/         the site
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

REPOSITORY = Path(__file__).resolve().parents[1]
BUILD = REPOSITORY / "build/docs"
SITE = BUILD / "site"
HOME = "docs/index.md"
_FENCED = re.compile(r"(^(?P<fence>```|~~~).*?^(?P=fence)[ ]*$)", re.MULTILINE | re.DOTALL)
_CODE_OR_LINK = re.compile(r"(?P<code>`[^`\n]+`)|(?P<image>!?)\[(?P<label>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True)
class Section:
    """Part of the sidebar."""

    title: str
    pages: list[tuple[str, str]]
    """Title and path of each page."""


@dataclass(frozen=True)
class Pages:
    """Pages of the site."""

    sections: list[Section]
    places: dict[str, str]
    """Path of each page in the repository, and in Sphinx's folder."""

    @classmethod
    def read(cls) -> Pages:
        """Read docs/site.toml."""
        table = tomllib.loads((REPOSITORY / "docs/site.toml").read_text())
        places, sections = {HOME: "index.md"}, []
        for section in table["section"]:
            for page in section["pages"]:
                path = PurePosixPath(page["path"])
                place = f"{page['as']}{path.suffix}" if "as" in page else str(path.relative_to("docs"))
                places[str(path)] = place
            sections.append(Section(section["title"], [(page["title"], page["path"]) for page in section["pages"]]))
        return cls(sections, places)

    def forgotten(self) -> list[str]:
        """Return the pages of docs/ that the sidebar lacks."""
        found = [*(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "docs").rglob("*.ipynb")]
        return sorted({str(path.relative_to(REPOSITORY)) for path in found} - set(self.places))

    def sidebar(self) -> str:
        """Return the directives of the sidebar, for the end of the first page."""
        parts = []
        for section in self.sections:
            entries = [
                f"{title} </{PurePosixPath(self.places[path]).with_suffix('')}>" for title, path in section.pages
            ]
            parts.append("\n".join(["```{toctree}", ":hidden:", f":caption: {section.title}", "", *entries, "```"]))
        return "\n\n" + "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class Links:
    """Links of one page, as the site needs them."""

    page: str
    pages: Pages
    source: str
    """URL of the code host's repository, at which files are shown; without it, a link to a file becomes plain text."""
    tag: str

    def rewrite(self, text: str) -> str:
        """Return a Markdown text with the links that the site needs; code stays as it is."""
        parts = _FENCED.split(text)
        # Each match is followed by its group `fence`.
        return "".join(
            _CODE_OR_LINK.sub(self._link, part) if index % 3 == 0 else part
            for index, part in enumerate(parts)
            if index % 3 != 2
        )

    def _link(self, match: re.Match[str]) -> str:
        target = match["target"]
        if match["code"] or _ELSEWHERE.match(target) or target.startswith("#"):
            return match[0]
        place, _, anchor = target.partition("#")
        path = os.path.normpath(f"{PurePosixPath(self.page).parent}/{place}")
        anchor = f"#{anchor}" if anchor else ""
        if path in self.pages.places:
            return f"{match['image']}[{match['label']}]({self._relative(self.pages.places[path])}{anchor})"
        if not (REPOSITORY / path).exists():
            # Sphinx reports the missing file.
            return match[0]
        if match["image"]:
            return f"![{match['label']}]({self._relative(path.removeprefix('docs/'))})"
        if not self.source:
            return match["label"]
        kind = "tree" if (REPOSITORY / path).is_dir() else "blob"
        return f"[{match['label']}]({self.source}/{kind}/{self.tag}/{path}{anchor})"

    def _relative(self, place: str) -> str:
        return os.path.relpath(place, PurePosixPath(self.pages.places[self.page]).parent)


def stage(folder: Path, source: str, version: str) -> None:
    """Copy all pages and images into a folder for Sphinx."""
    pages = Pages.read()
    if forgotten := pages.forgotten():
        raise SystemExit(f"error: docs/site.toml does not have {', '.join(forgotten)}")
    shutil.copytree(REPOSITORY / "docs/images", folder / "images")
    for path, place in pages.places.items():
        links = Links(path, pages, source, f"v{version}")
        text = (REPOSITORY / path).read_text()
        if path.endswith(".ipynb"):
            notebook = json.loads(text)
            for cell in notebook["cells"]:
                if cell["cell_type"] == "markdown":
                    cell["source"] = links.rewrite("".join(cell["source"]))
            text = json.dumps(notebook)
        else:
            text = links.rewrite(text)
        if path == HOME:
            text += pages.sidebar()
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)


def switcher(versions: list[str], site: str) -> str:
    """Return the text of switcher.json; the first version is the newest."""
    rows = [
        {"version": version, "url": f"{site}/{version}/", "preferred": number == 0}
        | ({"name": f"{version} (latest)"} if number == 0 else {})
        for number, version in enumerate(versions)
    ]
    return json.dumps(rows, indent=2) + "\n"


def front_page(version: str) -> str:
    """Return a page that leads to a version."""
    refresh = f'<meta http-equiv="refresh" content="0; url={version}/">'
    return f'<!doctype html>\n<title>Updraft</title>\n{refresh}\n<a href="{version}/">Updraft {version}</a>\n'


def main() -> int:
    """Build the site with Sphinx; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", default="", help="URL of the repository, for links to files")
    parser.add_argument("--site", default="", help="URL under which the versions are published")
    parser.add_argument("--builder", default="html", help="html, or linkcheck for links to other sites")
    options = parser.parse_args()
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    shutil.rmtree(BUILD / "source", ignore_errors=True)
    stage(BUILD / "source", options.source.rstrip("/"), version)
    output = SITE / version if options.builder == "html" else BUILD / options.builder
    shutil.rmtree(output, ignore_errors=True)
    sphinx = [
        sys.executable,
        "-m",
        "sphinx",
        "--builder",
        options.builder,
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
    ]
    folders = ["--conf-dir", str(REPOSITORY / "docs"), "--doctree-dir", str(BUILD / "doctrees"), str(BUILD / "source")]
    environment = {**os.environ, "UPDRAFT_DOCS_VERSION": version}
    status = subprocess.run([*sphinx, *folders, str(output)], env=environment, check=False).returncode
    if status == 0 and options.builder == "html":
        (SITE / "switcher.json").write_text(switcher([version], options.site.rstrip("/")))
        (SITE / "index.html").write_text(front_page(version))
        print(output / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
