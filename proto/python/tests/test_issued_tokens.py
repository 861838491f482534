# SPDX-License-Identifier: Apache-2.0
"""Tokens of issuers: the rights that they grant, and every reason to refuse one."""

import hashlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from issuing import ISSUER, Key, ServiceWithIssuer, entry, identity, key_set, refusal

from updraft.errors import PermissionDeniedError, UnauthenticatedError
from updraft.service import issued_tokens, security
from updraft.service.authenticator import Authenticator
from updraft.service.identities_file import parse_identities
from updraft.service.identity import TOKEN_HOLDER_AMONG_IDENTITIES, Identity, Scope
from updraft.service.security import SecurityError

KEY, OTHER, RSA = Key("one"), Key("two"), Key("rsa", "RS256")


@pytest.fixture
def service(tmp_path: Path) -> ServiceWithIssuer:
    return ServiceWithIssuer(tmp_path, KEY, RSA)


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_a_token_is_of_its_tenant_with_its_scopes(service: ServiceWithIssuer, algorithm: str) -> None:
    key = Key("k", algorithm)
    service.publish(KEY, key)
    found = identity(service.authenticator(roots=["/data/a"]), key.token(scope="call openid session"))
    assert found == Identity("sign-on:job", "a", frozenset({Scope.CALL, Scope.SESSION}), ("/data/a",))


def test_a_public_key_in_pem_verifies_whatever_key_id_a_token_has(service: ServiceWithIssuer) -> None:
    service.keys.write_bytes(KEY.pem)
    assert identity(service.authenticator(), KEY.token()).tenant == "a"
    assert refusal(service.authenticator(), OTHER.token()) == "the token is not one that this service knows"


def test_scopes_may_be_a_list_and_claims_may_have_other_names(service: ServiceWithIssuer) -> None:
    authenticator = service.authenticator(tenant_claim="https://example.org/team", scope_claim="roles")
    claims: dict[str, Any] = {"roles": ["call"], "scope": "admin", "https://example.org/team": "b"}
    found = identity(authenticator, KEY.token(**claims))
    assert (found.tenant, found.scopes) == ("b", frozenset({Scope.CALL}))


def test_an_issuer_for_one_tenant_needs_no_claim_for_it(service: ServiceWithIssuer) -> None:
    assert identity(service.authenticator(tenants=["a"]), KEY.token(tenant=None)).tenant == "a"


def test_an_issuer_may_be_trusted_with_every_tenant(service: ServiceWithIssuer) -> None:
    assert identity(service.authenticator(tenants=["*"]), KEY.token(tenant="any")).tenant == "any"


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"exp": int(time.time()) - 60}, "the token has expired"),
        ({"aud": "another"}, "the token is for another audience than this service"),
        ({"aud": None}, "the token lacks the claim 'aud'"),
        ({"iss": "https://elsewhere.example.org"}, "the token is not one that this service knows"),
        ({"iss": None}, "the token is not one that this service knows"),
        ({"exp": None}, "the token lacks the claim 'exp'"),
        ({"iat": None}, "the token lacks the claim 'iat'"),
        ({"exp": int(time.time()) + 100_000}, "the token's lifetime is "),
        ({"exp": float("inf")}, "the token is not one that this service knows"),
        ({"exp": "soon"}, "the token is not one that this service knows"),
        ({"exp": [1]}, "the token is not one that this service knows"),
    ],
)
def test_a_token_that_does_not_count_says_why(service: ServiceWithIssuer, claims: dict[str, Any], says: str) -> None:
    assert refusal(service.authenticator(), KEY.token(**claims)).startswith(says)


@pytest.mark.parametrize("claim", ["nbf", "iat"])
def test_a_token_for_later_does_not_count_yet(service: ServiceWithIssuer, claim: str) -> None:
    later: dict[str, Any] = {claim: int(time.time()) + 600}
    assert refusal(service.authenticator(), KEY.token(**later)).startswith("the token is not valid yet")


REVOKED = {
    "jti": '[revoked]\njti = ["t-1"]\n',
    "sub": '[revoked]\nsub = ["job"]\n',
    "token_sha256": '[revoked]\ntoken_sha256 = ["{digest}"]\n',
}


@pytest.mark.parametrize("by", REVOKED)
def test_a_token_is_revoked_by_itself_and_at_once(service: ServiceWithIssuer, by: str) -> None:
    authenticator = service.authenticator()
    named = service.identities.read_text()
    token, other = KEY.token(jti="t-1"), KEY.token(jti="t-2", sub="another-job")
    assert identity(authenticator, token).tenant == "a"
    service.identities.write_text(named + REVOKED[by].format(digest=hashlib.sha256(token.encode()).hexdigest()))
    assert refusal(authenticator, token) == "the token is not one that this service knows"
    assert identity(authenticator, other).tenant == "a"
    service.identities.write_text(named)
    assert identity(authenticator, token).tenant == "a"


def test_a_token_that_was_never_seen_is_revoked_too(service: ServiceWithIssuer) -> None:
    authenticator = service.authenticator()
    with service.identities.open("a") as file:
        file.write(REVOKED["jti"])
    assert refusal(authenticator, KEY.token(jti="t-1")) == "the token is not one that this service knows"
    assert identity(authenticator, KEY.token(jti=None)).tenant == "a"


def test_a_list_of_revoked_tokens_that_cannot_be_read_lets_nobody_in(
    service: ServiceWithIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = service.authenticator()
    assert identity(authenticator, KEY.token()).tenant == "a"
    with service.identities.open("a") as file:
        file.write('[revoked]\ntoken_sha256 = ["no digest"]\n')
    monkeypatch.setattr(security, "_GRACE_SECONDS", -1.0)
    assert refusal(authenticator, KEY.token()) == "the token is not one that this service knows"


def test_a_token_that_has_expired_since_its_call_counts_for_that_call(service: ServiceWithIssuer) -> None:
    authenticator = service.authenticator()
    now = int(time.time())
    token = KEY.token(iat=now - 600, exp=now - 60)
    assert refusal(authenticator, token) == "the token has expired"
    assert authenticator.identity(f"Bearer {token}", waited_seconds=60).tenant == "a"
    # The token was not cached as valid.
    assert refusal(authenticator, token) == "the token has expired"
    with service.identities.open("a") as file:
        file.write(REVOKED["sub"])
    with pytest.raises(UnauthenticatedError, match="not one that this service knows"):
        authenticator.identity(f"Bearer {token}", waited_seconds=60)


def test_clocks_may_differ_by_some_seconds(service: ServiceWithIssuer) -> None:
    assert identity(service.authenticator(), KEY.token(exp=int(time.time()) - 10)).tenant == "a"


def test_an_issuer_has_a_limit_of_its_own_for_the_life_of_tokens(service: ServiceWithIssuer) -> None:
    authenticator = service.authenticator(max_lifetime_seconds=600)
    now = int(time.time())
    assert identity(authenticator, KEY.token(iat=now, exp=now + 600)).tenant == "a"
    message = refusal(authenticator, KEY.token(iat=now, exp=now + 601))
    assert message == "the token's lifetime is 601 s from 'iat' to 'exp', the limit of its issuer is 600 s"


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"tenant": "c"}, "a token of this issuer cannot act for the tenant 'c'"),
        ({"tenant": "*"}, "the token names no tenant: its claim 'tenant' has to be a string"),
        ({"tenant": None}, "the token names no tenant"),
        ({"tenant": ["a"]}, "the token names no tenant"),
        ({"scope": "call admin"}, "a token of this issuer cannot have the scope admin"),
        ({"scope": ["write", "call"]}, "a token of this issuer cannot have the scope write"),
        ({"scope": None}, "the token grants nothing here: its claim 'scope' has none of call, session, write, admin"),
        ({"scope": "openid"}, "the token grants nothing here"),
        ({"scope": 1}, "the token grants nothing here"),
    ],
)
def test_no_token_grants_more_than_its_issuer_may(
    service: ServiceWithIssuer, claims: dict[str, Any], says: str
) -> None:
    with pytest.raises(PermissionDeniedError) as caught:
        identity(service.authenticator(), KEY.token(**claims))
    assert caught.value.message.startswith(says)


@pytest.mark.parametrize("tenant", ["\ud800", "a\nb", "a\x00", "\x1b[2J", "\u202e", "a" * 254])
def test_a_tenant_is_a_text_that_can_be_shown(service: ServiceWithIssuer, tenant: str) -> None:
    with pytest.raises(PermissionDeniedError, match="the token names no tenant"):
        identity(service.authenticator(tenants=["*"]), KEY.token(tenant=tenant))


@pytest.mark.parametrize("claims", [{"exp": 9 * 10**4299, "iat": -(10**4299)}, {"iat": -(10**4299)}])
def test_times_that_python_cannot_write_are_no_times(service: ServiceWithIssuer, claims: dict[str, Any]) -> None:
    assert refusal(service.authenticator(), KEY.token(**claims)) == "the token is not one that this service knows"


def test_every_tenant_is_not_a_tenant(service: ServiceWithIssuer) -> None:
    with pytest.raises(PermissionDeniedError, match="names no tenant"):
        identity(service.authenticator(tenants=["*"]), KEY.token(tenant="*"))


def test_keys_that_are_replaced_count_at_once(service: ServiceWithIssuer) -> None:
    authenticator, old = service.authenticator(), KEY.token()
    identity(authenticator, old)
    service.publish(OTHER)
    assert identity(authenticator, OTHER.token()).tenant == "a"
    assert "not one that this service knows" in refusal(authenticator, old)


@pytest.mark.parametrize("removed", ["keys", "identities"])
def test_a_file_that_is_away_revokes_tokens_that_were_verified(
    service: ServiceWithIssuer, removed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator, token = service.authenticator(), KEY.token()
    identity(authenticator, token)
    getattr(service, removed).unlink()
    # The grace period leaves time to write the file again.
    assert identity(authenticator, token).tenant == "a"
    monkeypatch.setattr(security, "_GRACE_SECONDS", -1.0)
    refusal(authenticator, token)


def test_another_ceiling_counts_for_tokens_that_were_verified(service: ServiceWithIssuer) -> None:
    authenticator, token = service.authenticator(), KEY.token()
    identity(authenticator, token)
    service.identities.write_text(entry(f'keys_file = "{service.keys}"', tenants=["b"]))
    with pytest.raises(PermissionDeniedError):
        identity(authenticator, token)


def test_an_issuer_that_is_added_counts_at_once_and_one_without_keys_when_it_has_some(
    service: ServiceWithIssuer,
) -> None:
    authenticator = service.authenticator()
    late = service.directory / "late.json"
    service.identities.write_text(entry(f'keys_file = "{late}"'))
    assert refusal(authenticator, KEY.token()) == "the token is not one that this service knows"
    late.write_bytes(key_set(KEY))
    assert identity(authenticator, KEY.token()).tenant == "a"


def test_a_verified_token_is_remembered_until_it_expires(
    service: ServiceWithIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    verify = issued_tokens._signed_claims

    def counted(token: str, *rest: Any) -> dict[str, Any] | None:
        verified.append(token)
        return verify(token, *rest)

    monkeypatch.setattr(issued_tokens, "_signed_claims", counted)
    now = time.time()
    service.authenticator()
    tokens = issued_tokens.IssuedTokens(parse_identities(service.identities.read_bytes()).issuers, lambda: now)
    token = KEY.token()
    assert tokens.identity(token) == tokens.identity(token)
    assert verified == [token]
    now += 3600 + issued_tokens._LEEWAY_SECONDS + 1
    tokens.identity(token)
    assert verified == [token, token]


def test_only_so_many_tokens_are_remembered(service: ServiceWithIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issued_tokens, "_MAX_VERIFIED", 2)
    authenticator = service.authenticator()
    for subject in ("a", "b", "c"):
        identity(authenticator, KEY.token(sub=subject))
    assert authenticator._issued is not None
    assert len(authenticator._issued._verified) == 2


@pytest.mark.parametrize("subject", ["", "line\nbreak", "ü", None])
def test_a_subject_that_a_log_cannot_show_is_left_out(service: ServiceWithIssuer, subject: str | None) -> None:
    assert identity(service.authenticator(), KEY.token(sub=subject)).name in ("sign-on", "sign-on:")


def test_tokens_of_every_file_are_valid_beside_those_of_issuers(service: ServiceWithIssuer) -> None:
    plain = service.directory / "tokens"
    plain.write_text("plain\nwith.two.dots\n")
    authenticator = service.authenticator(plain)
    assert identity(authenticator, "plain") is identity(authenticator, "with.two.dots") is TOKEN_HOLDER_AMONG_IDENTITIES
    assert identity(authenticator, KEY.token()).tenant == "a"
    assert refusal(authenticator, KEY.token(aud="another")) == "the token is for another audience than this service"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("", "the issuer 'sign-on' needs either keys_file or keys_url"),
        ('keys_file = "a"\nkeys_url = "https://b/c"', "the issuer 'sign-on' needs either keys_file or keys_url"),
        ('keys_url = "http://login.example.org/keys"', "issuer.0.keys_url: Value error, expected https, or http to"),
        ('keys_url = "file:///etc/keys"', "issuer.0.keys_url: Value error, expected https"),
        ('keys_url = "https://user:password@host/keys"', "issuer.0.keys_url: Value error, expected https://host/path"),
        ('keys_file = "/absent/keys.json"', "cannot read /absent/keys.json"),
        ('keys_file = "a"\nmax_lifetime_seconds = 0', "issuer.0.max_lifetime_seconds: Input should be greater than 0"),
        (f'keys_file = "a"\n{entry("")}keys_file = "b"', f"are the same issuer '{ISSUER}'"),
    ],
)
def test_a_table_that_says_something_else_is_refused_with_the_place(
    service: ServiceWithIssuer, table: str, says: str
) -> None:
    service.identities.write_text(entry(table))
    with pytest.raises(SecurityError) as caught:
        Authenticator(None, service.identities)
    assert says in str(caught.value)


def test_a_service_without_issuers_starts_without_what_verifies_tokens(tmp_path: Path) -> None:
    path = tmp_path / "identities.toml"
    path.write_text(f'[[identity]]\nname = "a"\ntenant = "a"\nscopes = ["call"]\ntoken_sha256 = ["{"0" * 64}"]\n')
    program = (
        "import sys; from pathlib import Path; from updraft.service.authenticator import Authenticator\n"
        f"Authenticator(None, Path({str(path)!r}))\n"
        "sys.exit(any(name.split('.')[0] in ('jwt', 'cryptography') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_who_is_known_is_told_when_its_token_expires(service: ServiceWithIssuer) -> None:
    expires = int(time.time()) + 100
    described = identity(service.authenticator(), KEY.token(exp=expires, scope="call session")).described()
    assert described == {
        "identity": "sign-on:job",
        "tenant": "a",
        "scopes": ["call", "session"],
        "roots": [],
        "expires": expires,
    }
