# SPDX-License-Identifier: Apache-2.0
"""Forged tokens are refused, and the refusal does not help a forger."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from issuing import Key, ServiceWithIssuer, good_claims, refusal

KEY, OTHER, RSA = Key("one"), Key("two"), Key("rsa", "RS256")


@pytest.fixture
def service(tmp_path: Path) -> ServiceWithIssuer:
    return ServiceWithIssuer(tmp_path, KEY, RSA)


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _shared_secret(secret: bytes, kid: str) -> str:
    """Return an HMAC token with a public key as its secret, which PyJWT refuses to make."""
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{_part(good_claims())}"
    mac = hmac.digest(secret, signed.encode(), hashlib.sha256)
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def _altered() -> str:
    header, _, signature = KEY.token().split(".")
    return f"{header}.{_part(good_claims(tenant='b'))}.{signature}"


FORGERIES: dict[str, Callable[[], str]] = {
    "no signature": lambda: f"{_part({'alg': 'none', 'kid': KEY.kid})}.{_part(good_claims())}.",
    "a secret that is the public key": lambda: _shared_secret(RSA.pem, RSA.kid),
    "another payload": _altered,
    "another key": lambda: jwt.encode(good_claims(), OTHER.private, "ES256", headers={"kid": KEY.kid}),
    "another algorithm than the key's": lambda: RSA.token(headers={"kid": KEY.kid}),
    "no token": lambda: "a.b.c",
    "empty parts": lambda: "..",
    "no objects": lambda: ".".join([base64.urlsafe_b64encode(b"[]").decode()] * 3),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_token_is_not_valid_and_hears_no_more(service: ServiceWithIssuer, forgery: str) -> None:
    assert refusal(service.authenticator(), FORGERIES[forgery]()) == "the token is not one that this service knows"


def test_a_bad_signature_hides_what_else_is_wrong(service: ServiceWithIssuer) -> None:
    claims = good_claims(exp=1, aud="another", tenant="c")
    assert refusal(service.authenticator(), jwt.encode(claims, OTHER.private, "ES256", headers={"kid": KEY.kid})) == (
        "the token is not one that this service knows"
    )


def test_an_unknown_key_is_not_answered_with_those_that_are_known(service: ServiceWithIssuer) -> None:
    assert refusal(service.authenticator(), OTHER.token()) == "the token is not one that this service knows"


def test_the_key_says_which_algorithm_counts(service: ServiceWithIssuer) -> None:
    narrow = Key("narrow", "RS256")
    narrow.entry["alg"] = "PS256"
    service.publish(narrow)
    assert refusal(service.authenticator(), narrow.token()) == "the token is not one that this service knows"


UNPROVEN: dict[str, Callable[[], str]] = {
    "no token of ours": lambda: "guessed",
    "two dots": lambda: "a.b.c",
    "unknown issuer": lambda: OTHER.token(iss="https://elsewhere.example.org"),
    "expired, of an unknown issuer": lambda: OTHER.token(iss="https://elsewhere.example.org", exp=1),
    "unknown key": lambda: OTHER.token(),
    "wrong signature": lambda: KEY.token()[:-8] + "AAAAAAAA",
    "expired, with a wrong signature": lambda: KEY.token(iat=1, exp=2)[:-8] + "AAAAAAAA",
    "another audience, with a wrong signature": lambda: KEY.token(aud="other")[:-8] + "AAAAAAAA",
}


@pytest.mark.parametrize("token", UNPROVEN)
def test_a_stranger_cannot_tell_one_refusal_from_another(service: ServiceWithIssuer, token: str) -> None:
    assert refusal(service.authenticator(), UNPROVEN[token]()) == "the token is not one that this service knows"


def test_the_log_says_why_and_not_more_than_once_a_second(
    service: ServiceWithIssuer, capsys: pytest.CaptureFixture[str]
) -> None:
    authenticator = service.authenticator()
    for _ in range(5):
        refusal(authenticator, OTHER.token())
    assert capsys.readouterr().out.count("its key is not one of the issuer's") == 1
