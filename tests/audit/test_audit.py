# SPDX-License-Identifier: Apache-2.0
"""`make audit`: its findings, and that it passes nothing without information about it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.audit.osv import Osv
from tests.packages.distribution import uv
from tests.programs.audit import run
from tests.programs.audit.bills import Component, read_bill
from tests.programs.audit.licences import is_allowed, refused
from tests.programs.audit.policy import AuditError, Ignored, Policy, read_policy
from tests.programs.audit.vulnerabilities import look_up
from tests.support.paths import REPOSITORY

_POLICY = Policy(allowed_licences=frozenset({"MIT", "Apache-2.0"}), licence_names={"MIT License": "MIT"})
_GRPC = Component("Java", "io.grpc:grpc-core", "1.0.0", "pkg:maven/io.grpc/grpc-core@1.0.0", ("Apache-2.0",))
_SHADY: dict[str, Any] = {
    "id": "GHSA-1",
    "summary": "It forgets to check.",
    "database_specific": {"severity": "HIGH"},
    "affected": [
        {"package": {"name": "io.grpc:grpc-core"}, "ranges": [{"events": [{"introduced": "0"}, {"fixed": "1.0.1"}]}]},
        {"package": {"name": "somebody-elses"}, "ranges": [{"events": [{"fixed": "7"}]}]},
    ],
}


@pytest.fixture
def osv() -> Iterator[Osv]:
    with Osv() as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


@pytest.fixture
def bill(tmp_path: Path) -> Path:
    """Write the jar's bill: a third-party package and one of ours."""
    ours = {
        "group": "io.updraft",
        "name": "updraft-client",
        "version": "1",
        "purl": "pkg:maven/io.updraft/updraft-client@1",
    }
    licences = [{"license": {"id": "Apache-2.0"}}]
    theirs = {"group": "io.grpc", "name": "grpc-core", "version": "1.0.0", "purl": f"{_GRPC.purl}?type=jar"}
    path = tmp_path / "java.cdx.json"
    path.write_text(json.dumps({"bomFormat": "CycloneDX", "components": [ours, {**theirs, "licenses": licences}]}))
    return path


def _audit(bill: Path, *options: str) -> int:
    return run.main(["--java", str(bill), *options])


def test_all_that_is_shipped_in_python_may_be_shipped(tmp_path: Path) -> None:
    path = tmp_path / "python.cdx.json"
    options = ("--locked", "--preview-features", "sbom-export", "--format", "cyclonedx1.5", "--no-default-groups")
    written = uv("export", *options, "--all-packages", "--all-extras", "--output-file", path, cwd=REPOSITORY)
    assert written.returncode == 0, written.stderr
    components = read_bill(path, "Python")
    assert {"pyarrow", "grpcio", "pyspark", "libcudf-cu13"} <= {component.name for component in components}
    assert refused(components, read_policy()) == []


def test_a_bill_says_what_others_have_made(bill: Path) -> None:
    assert read_bill(bill, "Java") == [_GRPC]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"bomFormat": "CycloneDX", "components": []}', '{"components": [{}]}']
)
def test_a_file_that_is_no_bill_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bill"
    path.write_text(text)
    with pytest.raises(AuditError, match=r"is no bill of materials|lists nothing"):
        read_bill(path, "Java")
    assert _audit(path, "--offline") == 1
    assert _audit(tmp_path / "missing", "--offline") == 1


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT AND GPL-3.0-only) OR Apache-2.0", True),
        ("(MIT OR GPL-3.0-only) AND (Apache-2.0 OR GPL-3.0-only)", True),
        ("(MIT) AND (GPL-3.0-only)", False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("", False),
    ],
)
def test_an_expression_is_allowed_as_its_words_say(expression: str, allowed: bool) -> None:
    assert is_allowed(expression, _POLICY) is allowed


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (("GPL-3.0-only",), "grpc-core 1.0.0 is under GPL-3.0-only, which may not be shipped"),
        (("Our own",), "grpc-core 1.0.0 says Our own of its licence"),
        ((), "grpc-core 1.0.0 says nothing of its licence"),
    ],
)
def test_what_may_not_be_shipped_is_named(said: tuple[str, ...], line: str) -> None:
    (found,) = refused([Component("Java", "grpc-core", "1.0.0", _GRPC.purl, said)], _POLICY)
    assert found.startswith(line)


@pytest.mark.parametrize("said", [("MIT License",), ("GPL-3.0-only", "MIT")])
def test_names_and_alternatives_are_understood(said: tuple[str, ...]) -> None:
    assert refused([Component("Java", "grpc-core", "1.0.0", _GRPC.purl, said)], _POLICY) == []


def test_a_known_vulnerability_is_named_with_what_mends_it(
    osv: Osv, bill: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    osv.known[_GRPC.purl] = [_SHADY]
    assert _audit(bill, "--osv-url", osv.url) == 1
    said = capsys.readouterr().err
    assert "io.grpc:grpc-core 1.0.0 has GHSA-1 (HIGH), fixed in 1.0.1: It forgets to check." in said


def test_what_nothing_is_known_against_passes(osv: Osv, bill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _audit(bill, "--osv-url", f"{osv.url}/") == 0
    assert osv.asked == [_GRPC.purl]
    assert "nothing found" in capsys.readouterr().out


def test_every_page_is_read(osv: Osv) -> None:
    osv.pages = True
    osv.known[_GRPC.purl] = [{**_SHADY, "id": f"GHSA-{number}"} for number in range(3)]
    assert [finding.id for finding in look_up([_GRPC], osv.url)] == ["GHSA-0", "GHSA-1", "GHSA-2"]


@pytest.mark.parametrize(
    ("status", "body"), [(500, b""), (200, b"<html>"), (200, b"[]"), (200, b"{}"), (200, b'{"results": []}')]
)
def test_half_an_answer_is_no_pass(
    osv: Osv, bill: Path, capsys: pytest.CaptureFixture[str], status: int, body: bytes
) -> None:
    osv.status, osv.body = status, body
    assert _audit(bill, "--osv-url", osv.url) == 1
    assert osv.url in capsys.readouterr().err


def test_a_service_that_is_away_is_no_pass(osv: Osv, bill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = osv.url
    osv.server_close()
    assert _audit(bill, "--osv-url", url) == 1
    assert "name another service with OSV's API by --osv-url" in capsys.readouterr().err


def test_without_the_service_it_says_what_it_did_not_look_up(bill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _audit(bill, "--offline") == 0
    assert "Known vulnerabilities were not looked up" in capsys.readouterr().out


def test_what_is_ignored_passes_until_its_day() -> None:
    policy = _POLICY.model_copy(update={"ignored": (Ignored(id="GHSA-1", reason="unused", until=date(2027, 1, 31)),)})
    assert policy.ignores("GHSA-1", date(2027, 1, 31))
    assert not policy.ignores("GHSA-1", date(2027, 2, 1))
    assert not policy.ignores("GHSA-2", date(2027, 1, 31))


def test_a_policy_that_says_something_else_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text('allowed = ["MIT"]')
    with pytest.raises(AuditError, match=r"audit\.toml cannot be used"):
        read_policy(path)
