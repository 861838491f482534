# SPDX-License-Identifier: Apache-2.0
"""Links and sidebar of the site that `make docs-site` builds; `make publish-site` keeps every version."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.paths import REPOSITORY

sys.path.insert(0, str(REPOSITORY / ".ci"))

from docs_site import HOME, Links, Pages, stage
from publish_site import BRANCH, publish

_SOURCE = "https://example.org/updraft"
_SITE = "https://docs.example.org"


def _rewritten(text: str, page: str = "docs/guides/writer.md", source: str = _SOURCE) -> str:
    return Links(page, Pages.read(), source, "v1").rewrite(text)


def test_every_page_of_the_documentation_is_in_the_sidebar() -> None:
    pages = Pages.read()
    assert pages.forgotten() == []
    assert [path for path in pages.places if not (REPOSITORY / path).exists()] == []
    assert [section.title for section in pages.sections] == [
        *("Start", "Notebooks", "Guides", "Reference", "Operations", "Development")
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[glossary](../glossary.md#pool)", "[glossary](../glossary.md#pool)"),
        ("[policy](../../SECURITY.md#report)", "[policy](../security.md#report)"),
        ("[it](../../gpu-writer/README.md)", "[it](writer-service.md)"),
        ("![plan](../images/udf.svg)", "![plan](../images/udf.svg)"),
        ("[`a`](../../.ci/docs_site.py#L3)", f"[`a`]({_SOURCE}/blob/v1/.ci/docs_site.py#L3)"),
        ("[tests](../../tests/tables)", f"[tests]({_SOURCE}/tree/v1/tests/tables)"),
        ("[gone](../gone.md), for Sphinx to refuse", None),
        ("[web](https://x.y/z) [part](#encodings)", "[web](https://x.y/z) [part](#encodings)"),
        ("`[code](../../tests)` and\n```text\n[code](../../tests)\n```\n", None),
    ],
)
def test_a_link_leads_to_a_page_of_the_site_or_to_the_code_host(before: str, after: str | None) -> None:
    assert _rewritten(before) == (before if after is None else after)


def test_links_of_a_page_from_outside_docs_follow_its_place_on_the_site() -> None:
    text = "![speed](docs/images/udf.svg) [limits](docs/guides/gpu.md#a-writer)"
    assert _rewritten(text, page="README.md") == "![speed](images/udf.svg) [limits](guides/gpu.md#a-writer)"


def test_without_a_code_host_a_link_to_a_file_becomes_its_text() -> None:
    assert _rewritten("See [`a.py`](../../.ci/docs_site.py).", source="") == "See `a.py`."


def test_the_first_page_has_the_sidebar_and_notebooks_have_working_links(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    stage(folder, _SOURCE, "1")
    assert (folder / "index.md").read_text().count("```{toctree}") == len(Pages.read().sections)
    assert "{toctree}" not in (REPOSITORY / HOME).read_text()
    notebook = json.loads((folder / "examples/notebooks/first-udf.ipynb").read_text())
    assert "](../../guides/notebook.md)" in "".join(notebook["cells"][0]["source"])


def test_each_version_keeps_its_folder_and_the_newest_is_offered_first(tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(remote)], check=True)
    built = tmp_path / "built"
    (built / "_static").mkdir(parents=True)
    (built / "gone.html").touch()
    for version in ("0.9.0", "0.10.0", "0.9.1", "0.9.0"):
        (built / "index.html").write_text(f"pages of {version}")
        publish(built, version, str(remote), _SITE)
        (built / "gone.html").unlink(missing_ok=True)

    pages = tmp_path / "pages"
    subprocess.run(["git", "clone", "--quiet", "--branch", BRANCH, str(remote), str(pages)], check=True)
    versions = json.loads((pages / "switcher.json").read_text())
    assert [row["version"] for row in versions] == ["0.10.0", "0.9.1", "0.9.0"]
    assert [row["preferred"] for row in versions] == [True, False, False]
    assert versions[2]["url"] == f"{_SITE}/0.9.0/"
    assert (pages / "0.9.1/index.html").read_text() == "pages of 0.9.1"
    assert "url=0.10.0/" in (pages / "index.html").read_text()
    assert (pages / ".nojekyll").exists()
    assert not (pages / "0.9.0/gone.html").exists(), "a version that is published again has only its own pages"
