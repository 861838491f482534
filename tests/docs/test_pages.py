# SPDX-License-Identifier: Apache-2.0
"""Every page of the repository: its links, make targets and guarantees hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.markdown import Page, links_in, repository_pages
from tests.support.paths import REPOSITORY

_TEST = re.compile(r"^(?:async )?def test_|@Test\b|^\s*test\(", re.MULTILINE)
_PROMISE = re.compile(r"^\| (?!promise \||layer \||---).*$", re.MULTILINE)
_TARGET = re.compile(r"^([a-z0-9-]+):", re.MULTILINE)
_HOSTS = (
    *(
        "arrow.apache.org",
        "datafusion.apache.org",
        "docs.nvidia.com",
        "keepachangelog.com",
        "osv.dev",
        "semver.org",
        "www.brendangregg.com",
    ),
    "www.conventionalcommits.org",
)
_KNOWN_SITE = re.compile(rf"https://(?:{'|'.join(map(re.escape, _HOSTS))})(?:/|$)")
# A command must be on one line: users copy it at once, and tests/kube types each line as it is.
_CUT_COMMAND = re.compile(r"(?<!`)`(?:kubectl|helm|make|updraft|updraft-server|pip|\./mvnw) [^`\n]*\n[^`]*`")


@pytest.fixture(params=repository_pages())
def page(request: pytest.FixtureRequest) -> Page:
    return Page(REPOSITORY / request.param)


def test_every_relative_link_leads_somewhere(page: Page) -> None:
    assert [problem for link in page.relative_links if (problem := page.problem(link))] == []


def test_every_link_to_another_site_is_https_and_leads_to_a_known_host(page: Page) -> None:
    """`make docs-links` requests these links each night. This test finds a mistyped host without the internet."""
    assert [link for link in page.other_sites if not _KNOWN_SITE.match(link)] == []


def test_every_command_is_on_one_line(page: Page) -> None:
    assert _CUT_COMMAND.findall(page.text) == []


def test_every_guide_is_reached_from_the_readme() -> None:
    links = {link.partition("#")[0] for link in Page(REPOSITORY / "README.md").relative_links}
    guides = {f"docs/guides/{guide.name}" for guide in (REPOSITORY / "docs/guides").glob("*.md")}
    assert guides | {"docs/runbooks.md"} <= links


def test_the_map_of_the_tests_has_every_folder() -> None:
    tests = REPOSITORY / "tests"
    folders = {module.parent.name for module in tests.glob("*/__init__.py")}
    links = {link.rstrip("/") for link in Page(tests / "README.md").relative_links}
    assert folders == {link for link in links if "/" not in link}


def test_every_target_of_make_that_is_named_exists(page: Page) -> None:
    targets = set(_TARGET.findall((REPOSITORY / "Makefile").read_text()))
    assert [name for name in page.make_targets if name not in targets] == []


def _guarantees() -> list[tuple[str, list[str]]]:
    section = Page(REPOSITORY / "README.md").section("What it guarantees")
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [(guarantee, links_in(tests)) for guarantee, tests in rows[2:]]


@pytest.mark.parametrize(("guarantee", "links"), _guarantees())
def test_every_guarantee_is_shown_by_tests(guarantee: str, links: list[str]) -> None:
    assert links, guarantee
    for link in links:
        shown_by = REPOSITORY / link
        assert _has_tests(shown_by), f"{guarantee}: {link} holds no test"


def _has_tests(path: Path) -> bool:
    files = [path] if path.is_file() else list(path.glob("test_*.py"))
    return any(_TEST.search(file.read_text()) for file in files)


def test_a_broken_page_is_noticed(tmp_path: Path) -> None:
    broken = tmp_path / "page.md"
    broken.write_text(
        "# A page\n[gone](gone.md) ![image](image.svg) [part](#a-part) [page](#a-page) [web](https://x.y)\n"
    )
    problems = [Page(broken).problem(link) for link in Page(broken).relative_links]
    assert [problem is None for problem in problems] == [False, False, False, True]
    assert Page(broken).other_sites == ["https://x.y"]
    assert not _KNOWN_SITE.match("https://x.y")
    assert not _KNOWN_SITE.match("http://semver.org")


@pytest.mark.parametrize(
    ("heading", "at_least"), [("Layers of the sandbox", 9), ("What a pool defends", 35), ("What a writer defends", 7)]
)
def test_every_promise_of_isolation_names_what_tries_it(heading: str, at_least: int) -> None:
    promises = _PROMISE.findall(Page(REPOSITORY / "docs/isolation.md").section(heading))
    assert len(promises) >= at_least
    assert [promise for promise in promises if not any("tests" in link for link in links_in(promise))] == []
