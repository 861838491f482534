# SPDX-License-Identifier: Apache-2.0
"""Findings of `updraft doctor` about a client that a service refuses: details for known callers, none for strangers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from issuing import Key, entry, key_set

from tests.support.certificates import Authority
from tests.support.paths import connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import EXTENSION
from tests.support.writer import LocalWriter
from updraft_cli.commands.doctor import Doctor
from updraft_cli.doctor.finding import Finding, Level

KEY = Key("ours")
UNKNOWN = "the token is not one that this service knows"


def _identity(name: str, scopes: str, more: str = "") -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return (
        f'[[identity]]\nname = "{name}-of-a"\ntenant = "a"\nscopes = [{scopes}]\ntoken_sha256 = ["{digest}"]\n{more}\n'
    )


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of identities, whose token is the first part of their name, and of an issuer."""
    directory = tmp_path_factory.mktemp("identities")
    (directory / "keys.json").write_bytes(key_set(KEY))
    path = directory / "identities.toml"
    path.write_text(
        _identity("full", '"call", "session", "write"', 'certificates = ["full.example.org"]')
        + _identity("caller", '"call"')
        + _identity("shipper", '"session"')
        + _identity("rooted", '"write"', 'roots = ["/data/a"]')
        + entry(f'keys_file = "{directory / "keys.json"}"', scopes=["call", "session", "write"])
    )
    return path


@pytest.fixture(scope="module")
def known_pool(identities: Path) -> Iterator[LocalPool]:
    with LocalPool(workers=1, arguments=["--identities-file", str(identities)]) as running:
        yield running


@pytest.fixture(scope="module")
def known_writer(identities: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWriter]:
    root = tmp_path_factory.mktemp("files")
    with LocalWriter(root, arguments=["--identities-file", str(identities)]) as running:
        yield running


Ask = Callable[..., list[Finding]]


@pytest.fixture
def ask(known_pool: LocalPool, known_writer: LocalWriter) -> Ask:
    """Return the doctor's findings in a job with this token, for its pool or its writer."""

    def findings(token: str, peer: str = "udf", tenant: str = "") -> list[Finding]:
        service = known_pool if peer == "udf" else known_writer
        confs = {
            "spark.jars": str(connector_jar()),
            "spark.sql.extensions": EXTENSION,
            f"spark.updraft.{peer}.endpoint": service.tcp_endpoint,
            f"spark.updraft.{peer}.token": token,
            f"spark.updraft.{peer}.tenant": tenant,
        }
        parts = [f"{name}={value}" for name, value in confs.items() if value]
        return [each for each in Doctor(conf=parts, timeout_seconds=60.0).findings() if each.subject == peer]

    return findings


def _error(findings: list[Finding]) -> Finding:
    """Return the first error, which must have advice."""
    error = next(finding for finding in findings if finding.level is Level.ERROR)
    assert error.advice
    return error


def _says(findings: list[Finding], check: str) -> str:
    return next(finding.found for finding in findings if finding.check == check)


@pytest.mark.parametrize("peer", ["udf", "write"])
def test_who_may_do_all_that_the_job_needs_hears_who_it_is(ask: Ask, peer: str) -> None:
    findings = ask("full", peer)
    assert {finding.level for finding in findings} == {Level.OK}
    assert _says(findings, "identity") == "'full-of-a' of the tenant 'a', with the scopes call, session, write"


@pytest.mark.parametrize(
    ("token", "peer", "scope", "what"),
    [
        ("caller", "udf", "session", "run the functions that a Spark job ships"),
        ("rooted", "udf", "session", "run the functions that a Spark job ships"),
        ("caller", "write", "write", "write files"),
    ],
)
def test_a_scope_that_is_missing_is_named(ask: Ask, token: str, peer: str, scope: str, what: str) -> None:
    error = _error(ask(token, peer))
    assert error.check == "scope"
    assert f"'{token}-of-a' may not {what}: it needs the scope {scope}, but has " in error.found
    assert "identities file" in error.advice


def test_who_only_ships_functions_is_not_told_of_a_fault(ask: Ask) -> None:
    findings = ask("shipper")
    assert {finding.level for finding in findings} == {Level.OK}
    assert "requires the scope call" in _says(findings, "round trip")


def test_the_roots_of_a_writer_are_named(ask: Ask) -> None:
    assert "below /data/a" in _says(ask("rooted", "write"), "identity")


def test_a_conf_that_names_the_tenant_of_somebody_else_is_found(ask: Ask) -> None:
    error = _error(ask("full", tenant="b"))
    assert (error.check, error.found) == ("tenant", "the conf names the tenant 'b', but 'full-of-a' belongs to 'a'")


@pytest.mark.parametrize("peer", ["udf", "write"])
def test_the_holder_of_an_issued_token_hears_when_it_expires(ask: Ask, peer: str) -> None:
    findings = ask(KEY.token(scope="call session write"), peer)
    assert {finding.level for finding in findings} == {Level.OK}
    assert "'sign-on:job' of the tenant 'a'" in _says(findings, "identity")
    assert "its token expires at" in _says(findings, "identity")
    soon = ask(KEY.token(scope="call session write", exp=int(time.time()) + 120), peer)
    (warning,) = (finding for finding in soon if finding.level is not Level.OK)
    assert (warning.level, warning.check) == (Level.WARNING, "token")
    assert "the connector reads it for each call" in warning.advice


@pytest.mark.parametrize(
    ("claims", "check", "says"),
    [
        ({"iat": 1_700_000_000, "exp": 1_700_000_060}, "token", "the token has expired"),
        ({"aud": "another"}, "token", "the token is for another audience than this service"),
        ({"scope": "admin"}, "identity", "a token of this issuer cannot have the scope admin"),
        ({"tenant": "c"}, "identity", "a token of this issuer cannot act for the tenant 'c'"),
        ({"scope": None}, "identity", "the token grants nothing here"),
    ],
    ids=["expired", "audience", "scope", "tenant", "no scope"],
)
def test_the_holder_of_a_token_that_its_issuer_has_signed_hears_what_is_wrong(
    ask: Ask, claims: dict[str, Any], check: str, says: str
) -> None:
    error = _error(ask(KEY.token(**claims)))
    assert error.check == check
    assert says in error.found


def test_a_stranger_hears_the_same_whatever_it_tries_and_its_own_token_read_out(ask: Ask) -> None:
    stranger = Key("theirs")
    expired = stranger.token(iat=1_700_000_000, exp=1_700_000_060)
    elsewhere = stranger.token(iss="https://elsewhere.example.org")
    found = {token: _error(ask(token)) for token in ("guessed", expired, elsewhere, stranger.token())}
    assert {(error.check, error.found) for error in found.values()} == {("token", UNKNOWN)}
    assert hashlib.sha256(b"guessed").hexdigest() in found["guessed"].advice
    assert "the token has expired: get a new one" in found[expired].advice
    assert "2023-11-14 22:14:20 UTC" in found[expired].advice
    assert 'iss "https://elsewhere.example.org"' in found[elsewhere].advice
    assert all("of-a" not in error.found + error.advice for error in found.values())


def test_a_certificate_is_an_identity_and_one_that_is_none_is_named(identities: Path, authority: Authority) -> None:
    own = authority.identity("localhost")
    arguments = [
        *("--tls-certificate-file", str(own.certificate), "--tls-key-file", str(own.key)),
        *("--tls-client-ca-file", str(authority.certificate), "--identities-file", str(identities)),
    ]

    with LocalPool(workers=1, arguments=arguments) as pool:

        def findings(name: str) -> list[Finding]:
            client = authority.identity(name)
            return list(
                Doctor(
                    endpoint=f"grpc+tls://localhost:{pool.tcp_address.rpartition(':')[2]}",
                    ca_file=authority.certificate,
                    certificate_file=client.certificate,
                    key_file=client.key,
                    timeout_seconds=60.0,
                ).findings()
            )

        known = findings("full.example.org")
        assert {finding.level for finding in known} == {Level.OK}
        assert "'full-of-a' of the tenant 'a'" in _says(known, "identity")
        error = _error(findings("other.example.org"))
        assert error.check == "token"
        assert "its names: other.example.org" in error.advice
