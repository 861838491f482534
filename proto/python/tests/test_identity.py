# SPDX-License-Identifier: Apache-2.0
"""Callers' identities by token and certificate, and their rights."""

import hashlib
from pathlib import Path

import pytest

from updraft.errors import PermissionDeniedError, UnauthenticatedError
from updraft.service.authenticator import Authenticator, certificate_names
from updraft.service.identity import ANYBODY, Identity, Scope
from updraft.service.security import SecurityError


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def entry(name: str, tenant: str = "a", scopes: str = '["call"]', **more: str) -> str:
    rest = "\n".join(f"{key} = {value}" for key, value in more.items())
    return f'[[identity]]\nname = "{name}"\ntenant = "{tenant}"\nscopes = {scopes}\n{rest}\n'


FILE = entry("team-a", "a", '["call", "session"]', token_sha256=f'["{digest("old")}", "{digest("new")}"]') + entry(
    "gateway",
    "*",
    '["write", "admin"]',
    certificates='["spiffe://example.org/gateway", "gateway.example.org"]',
    roots='["/data/a"]',
)


@pytest.fixture
def authenticator(tmp_path: Path) -> Authenticator:
    (tmp_path / "identities.toml").write_text(FILE)
    return Authenticator(None, tmp_path / "identities.toml")


@pytest.mark.parametrize("token", ["old", "new"])
def test_a_token_is_of_its_identity(authenticator: Authenticator, token: str) -> None:
    expected = Identity("team-a", "a", frozenset({Scope.CALL, Scope.SESSION}))
    assert authenticator.identity(f"Bearer {token}") == expected


@pytest.mark.parametrize("names", [["spiffe://example.org/gateway"], ["unknown", "gateway.example.org"]])
def test_a_certificate_is_of_its_identity(authenticator: Authenticator, names: list[str]) -> None:
    found = authenticator.identity("", names)
    assert (found.name, found.tenant, found.roots) == ("gateway", None, ("/data/a",))
    assert found.scopes == {Scope.WRITE, Scope.ADMIN}


@pytest.mark.parametrize(
    ("authorization", "names"),
    [
        ("", []),
        ("Bearer other", []),
        ("Bearer ", []),
        ("old", []),
        ("Basic old", []),
        (f"Bearer {digest('old')}", []),
        ("", ["spiffe://example.org/other"]),
        # A certificate does not make up for a wrong token.
        ("Bearer other", ["spiffe://example.org/gateway"]),
    ],
)
def test_nobody_else_is_known(authenticator: Authenticator, authorization: str, names: list[str]) -> None:
    with pytest.raises(UnauthenticatedError):
        authenticator.identity(authorization, names)


def test_a_service_without_files_knows_everybody_and_lets_nobody_administer() -> None:
    assert Authenticator(None, None).identity("Bearer anything") is ANYBODY
    with pytest.raises(PermissionDeniedError, match="may not drain: it needs the scope admin, but has call, "):
        ANYBODY.require(Scope.ADMIN, "drain")


def test_tokens_of_both_files_are_valid(tmp_path: Path) -> None:
    (tmp_path / "identities.toml").write_text(FILE)
    (tmp_path / "tokens").write_text("plain\n")
    authenticator = Authenticator(tmp_path / "tokens", tmp_path / "identities.toml")
    assert authenticator.identity("Bearer new").name == "team-a"
    plain = authenticator.identity("Bearer plain")
    assert (plain.tenant, plain.scopes) == (None, frozenset({Scope.CALL, Scope.SESSION, Scope.WRITE}))
    with pytest.raises(UnauthenticatedError, match="not one that this service knows"):
        authenticator.identity("Bearer third")


@pytest.mark.parametrize(("claims", "tenant"), [([], "a"), (["", ""], "a"), (["a", ""], "a"), (["", "a"], "a")])
def test_an_identity_acts_for_its_own_tenant(claims: list[str], tenant: str) -> None:
    assert Identity("x", "a", frozenset()).tenant_of(claims) == tenant


@pytest.mark.parametrize("claims", [["b", ""], ["", "b"], ["a", "b"], ["b", "a"], ["*"]])
def test_an_identity_cannot_claim_another_tenant(claims: list[str]) -> None:
    with pytest.raises(PermissionDeniedError, match="is of the tenant 'a' and cannot act for"):
        Identity("x", "a", frozenset()).tenant_of(claims)


def test_an_identity_of_no_tenant_says_which_it_is() -> None:
    assert Identity("x", None, frozenset()).tenant_of(["", "b"]) == "b"


def test_a_changed_file_is_read_again_and_a_removed_one_revokes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "identities.toml"
    path.write_text(FILE)
    authenticator = Authenticator(None, path)
    path.write_text(entry("team-b", "b", token_sha256=f'["{digest("third")}"]'))
    assert authenticator.identity("Bearer third").tenant == "b"
    with pytest.raises(UnauthenticatedError):
        authenticator.identity("Bearer old")
    path.unlink()
    # The grace period leaves time to write the file again.
    assert authenticator.identity("Bearer third").tenant == "b"
    monkeypatch.setattr("updraft.service.security._GRACE_SECONDS", -1.0)
    with pytest.raises(UnauthenticatedError):
        authenticator.identity("Bearer third")
    with pytest.raises(UnauthenticatedError, match="cannot use its identities file"):
        authenticator.identity("")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the file has neither an [[identity]] nor an [[issuer]]"),
        ("identity = []", "the file has neither an [[identity]] nor an [[issuer]]"),
        ("not toml", "Expected"),
        (entry("a"), "the identity 'a' has neither token_sha256 nor certificates"),
        (entry("a", token_sha256='["secret"]'), "identity.0.token_sha256.0: String should match"),
        (entry("a", token_sha256=f'["{digest("x")}"]', scope='["call"]'), "identity.0.scope: Extra inputs"),
        (entry("a", scopes='["everything"]', certificates='["a"]'), "identity.0.scopes.0: Input should be 'call'"),
        (entry("a", scopes="[]", certificates='["a"]'), "identity.0.scopes: List should have at least 1 item"),
        (entry("a", tenant="", certificates='["a"]'), "identity.0.tenant: String should have at least 1 character"),
        (
            entry("a", certificates='["x"]') + entry("b", certificates='["x"]'),
            "'a' and 'b' have a token or certificate in common",
        ),
    ],
)
def test_a_file_that_says_something_else_is_refused_with_the_place(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "identities.toml"
    path.write_text(content)
    with pytest.raises(SecurityError) as caught:
        Authenticator(None, path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_common_name_cannot_pass_for_a_spiffe_id() -> None:
    properties = {"x509_common_name": [b"spiffe://example.org/gateway"], "peer_spiffe_id": [b"spiffe://example.org/b"]}
    assert certificate_names(properties) == ["spiffe://example.org/b"]
    assert certificate_names({"x509_common_name": [b"host"]}) == ["host"]
    assert certificate_names({}) == []


async def test_callers_that_prove_nothing_are_counted(authenticator: Authenticator) -> None:
    await authenticator.identify("Bearer old")
    assert authenticator.refused == 0
    for authorization in ("", "Bearer other"):
        with pytest.raises(UnauthenticatedError):
            await authenticator.identify(authorization)
    assert authenticator.refused == 2
