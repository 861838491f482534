# SPDX-License-Identifier: Apache-2.0
"""Findings of `updraft doctor` about a driver's signing key, on a pool that runs only signed functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from signing import Driver, write_signers

from tests.support.paths import connector_jar
from tests.support.pool import LocalPool
from tests.support.signing import KEY_FILE, Signing, new_signing
from tests.support.spark import EXTENSION
from updraft_cli.commands.doctor import Doctor
from updraft_cli.doctor.finding import Finding, Level

LIFETIME = "spark.updraft.udf.signatureLifetime"

Ask = Callable[..., Finding]


@pytest.fixture(scope="module")
def signing() -> Iterator[Signing]:
    with new_signing() as signing:
        yield signing


@pytest.fixture(scope="module")
def signing_pool(signing: Signing) -> Iterator[LocalPool]:
    with signing.pool() as pool:
        yield pool


@pytest.fixture(scope="module")
def lenient_pool(signing: Signing) -> Iterator[LocalPool]:
    """Start a pool that is migrating to signatures and also runs unsigned functions."""
    arguments = ["--signers-file", str(signing.signers_file)]
    with LocalPool(workers=1, session_functions="prefer-signed", arguments=arguments) as pool:
        yield pool


@pytest.fixture
def ask(signing_pool: LocalPool) -> Ask:
    """Return the doctor's finding about a job's signature with this key file."""
    return partial(signature_found, signing_pool)


@pytest.fixture
def ask_lenient(lenient_pool: LocalPool) -> Ask:
    """Return the doctor's finding on a pool that also runs unsigned functions."""
    return partial(signature_found, lenient_pool)


def signature_found(pool: LocalPool, key_file: str, *, lifetime: str = "") -> Finding:
    """Return the doctor's finding about a job's signature."""
    confs = {
        "spark.jars": str(connector_jar()),
        "spark.sql.extensions": EXTENSION,
        "spark.updraft.udf.endpoint": pool.tcp_endpoint,
        KEY_FILE: key_file,
        LIFETIME: lifetime,
    }
    parts = [f"{name}={value}" for name, value in confs.items() if value]
    found = Doctor(conf=parts, timeout_seconds=60.0).findings()
    (signature,) = (each for each in found if each.check == "signature")
    assert (signature.level is Level.OK) or signature.advice
    return signature


def test_a_key_that_the_pool_knows_is_named(ask: Ask, signing: Signing) -> None:
    assert ask(str(signing.key_file)).found == "the pool knows the key as 'a-driver'"


def test_a_job_without_a_key_hears_what_to_set(ask: Ask) -> None:
    missing = ask("")
    assert (missing.level, missing.found) == (Level.ERROR, "the pool runs only functions that their driver has signed")
    assert f"set {KEY_FILE}; make a key with `openssl genpkey" in missing.advice


def test_a_key_that_the_pool_does_not_know_is_told_by_its_digest(ask: Ask) -> None:
    with new_signing() as stranger:
        found = ask(str(stranger.key_file))
    assert "this pool does not know the key that signed the function (SHA-256 " in found.found
    assert "the public key: openssl pkey" in found.advice


def test_a_key_for_other_tenants_is_found(ask: Ask, signing: Signing) -> None:
    write_signers(signing.signers_file, [signing.driver], tenants=["team-b"])
    try:
        assert "for which this key may not sign" in ask(str(signing.key_file)).found
    finally:
        signing.trust(signing.driver)


@pytest.mark.parametrize(("content", "says"), [(None, "No such file"), ("nothing", "MalformedFraming"), ("", "")])
def test_a_file_without_a_key_is_found_before_the_pool_is_asked(
    ask: Ask, tmp_path: Path, content: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)
    found = ask(str(tmp_path / "key"))
    assert found.level is Level.ERROR
    assert found.found.startswith(f"{KEY_FILE}: ")
    assert says in found.found


def test_a_public_key_is_no_key_to_sign_with(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(Driver().public_pem)
    assert ask(str(tmp_path / "key")).level is Level.ERROR


@pytest.mark.parametrize(("lifetime", "level"), [("7d", Level.OK), ("168h", Level.OK), ("8d", Level.ERROR)])
def test_a_lifetime_beyond_that_of_the_signer_is_found(ask: Ask, signing: Signing, lifetime: str, level: Level) -> None:
    found = ask(str(signing.key_file), lifetime=lifetime)
    assert found.level is level
    if level is Level.ERROR:
        assert "valid for 691200 seconds, but its signer may sign for at most 604800" in found.found
        assert found.advice.startswith(f"lower {LIFETIME}")


def test_the_lifetime_that_a_job_has_by_default_is_checked_too(ask: Ask, signing: Signing) -> None:
    write_signers(signing.signers_file, [signing.driver], max_lifetime_days=1)
    try:
        found = ask(str(signing.key_file))
        assert found.level is Level.ERROR
        assert "its signer may sign for at most 86400" in found.found
        assert ask(str(signing.key_file), lifetime="24h").level is Level.OK
    finally:
        signing.trust(signing.driver)


def test_what_is_no_duration_is_found(ask: Ask, signing: Signing) -> None:
    found = ask(str(signing.key_file), lifetime="a week")
    assert (found.level, found.found) == (Level.ERROR, f"{LIFETIME} = 'a week' is not a duration")


def test_a_key_is_checked_where_a_pool_only_prefers_signatures(ask_lenient: Ask, signing: Signing) -> None:
    assert ask_lenient(str(signing.key_file)).found == "the pool knows the key as 'a-driver'"
    with new_signing() as stranger:
        unknown = ask_lenient(str(stranger.key_file))
    assert unknown.level is Level.ERROR
    assert "this pool does not know the key that signed the function" in unknown.found
    unsigned = ask_lenient("")
    assert (unsigned.level, f"set {KEY_FILE}" in unsigned.advice) == (Level.WARNING, True)
