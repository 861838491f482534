# SPDX-License-Identifier: Apache-2.0
"""Attempts of clients to impersonate others with a JSON Web Token that is unsigned or claims too much."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterable
from typing import Any

from issuing import ISSUER, Key, good_claims, key_set
from jwt.algorithms import get_default_algorithms

from tests.attacks.clients import SCHEMA, admitted, command
from tests.attacks.outsiders import ClientAttempts, Outsider
from tests.support.flight import first_message

ATTEMPTS = ClientAttempts()

ISSUERS_KEY, ISSUERS_OTHER_KEY = Key("one"), Key("two", "RS256")
TENANTS = ("a", "b")


def _encoded(part: Any) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _signed(header: Any, claims: Any, key: Key = ISSUERS_KEY) -> str:
    """Return a token with this header and these claims, valid or not, signed with the key."""
    text = f"{_encoded(header)}.{_encoded(claims)}"
    return f"{text}.{_encoded(get_default_algorithms()[key.algorithm].sign(text.encode(), key.private))}"


def _header(**others: Any) -> dict[str, Any]:
    return {"alg": "ES256", "kid": ISSUERS_KEY.kid, "typ": "JWT", **others}


def _claims(**others: Any) -> dict[str, Any]:
    return good_claims(scope="call session", **others)


def _statuses(outsider: Outsider, tokens: Iterable[str]) -> list[str]:
    return [_status(outsider, f"Bearer {token}") for token in tokens]


def _status(outsider: Outsider, *authorizations: str) -> str:
    headers = [("authorization", value) for value in authorizations]
    return outsider.exchange(first_message(command(application=""), SCHEMA[0]), headers=headers).half_close().end()


@ATTEMPTS("CANCELLED")
def presents_a_good_token(outsider: Outsider) -> list[str]:
    # If this attempt did not succeed, refusals of the other attempts would prove nothing.
    headers = [("authorization", f"Bearer {_signed(_header(), _claims())}")]
    return [admitted(outsider.exchange(first_message(command(), SCHEMA[0]), headers=headers)).leave()]


@ATTEMPTS("UNAUTHENTICATED")
def presents_tokens_that_nobody_signed(outsider: Outsider) -> list[str]:
    algorithms = ("none", "None", "nOnE", "", None, ["ES256"], "ES384", "ES256K")
    unsigned = [f"{_encoded(_header(alg=name))}.{_encoded(_claims())}." for name in algorithms]
    text = f"{_encoded(_header())}.{_encoded(_claims())}"
    return _statuses(outsider, [*unsigned, text + ".", f"{text}.{_encoded(bytes(64))}"])


@ATTEMPTS("UNAUTHENTICATED")
def signs_with_what_everybody_knows(outsider: Outsider) -> list[str]:
    secrets = (ISSUERS_OTHER_KEY.pem, ISSUERS_KEY.pem, key_set(ISSUERS_KEY, ISSUERS_OTHER_KEY), b"")
    tokens = []
    for secret in secrets:
        for kid in ("one", "two", None):
            text = f"{_encoded(_header(alg='HS256', kid=kid))}.{_encoded(_claims())}"
            tokens.append(f"{text}.{_encoded(hmac.digest(secret, text.encode(), hashlib.sha256))}")
    return _statuses(outsider, tokens)


@ATTEMPTS("UNAUTHENTICATED")
def signs_with_a_key_of_its_own_and_says_where_it_is(outsider: Outsider) -> list[str]:
    own = Key(ISSUERS_KEY.kid)
    places: list[dict[str, Any]] = [
        {},
        {"jwk": own.entry},
        {"jku": "https://attacker.example.org/keys"},
        {"x5u": "file:///dev/null"},
        {"x5c": ["AA=="]},
        *({"kid": kid} for kid in ("../../../dev/null", "one\x00", "' OR 1", "", None, 1, ["one"], {"one": 1})),
    ]
    return _statuses(outsider, (_signed(_header(**place), _claims(), own) for place in places))


@ATTEMPTS("UNAUTHENTICATED")
def has_times_without_sense_signed(outsider: Outsider) -> list[str]:
    now, huge = int(time.time()), 10**4300 - 1
    ends: list[Any] = [now - 3600, now + 10**7, huge, "soon", "", float("inf"), float("nan"), [now], {}]
    times: list[dict[str, Any]] = [
        *({"exp": value} for value in ends),
        *({"iat": value} for value in (now + 3600, -huge, "x", float("-inf"), float("nan"), [now])),
        *({"nbf": value} for value in (now + 3600, huge, "x", float("inf"))),
        {"exp": True},
    ]
    return _statuses(outsider, (_signed(_header(), _claims(**values)) for values in times))


@ATTEMPTS("UNAUTHENTICATED")
def has_another_audience_or_issuer_signed(outsider: Outsider) -> list[str]:
    audiences: list[Any] = [
        [],
        ["another"],
        {"updraft": 1},
        1,
        True,
        "updraft ",
        "UPDRAFT",
        [["updraft"]],
        ["updraft", 1],
    ]
    issuers: list[Any] = [[ISSUER], {"iss": ISSUER}, 1, f"{ISSUER}/", ISSUER.upper()]
    odd: list[dict[str, Any]] = [*({"aud": value} for value in audiences), *({"iss": value} for value in issuers)]
    return _statuses(outsider, (_signed(_header(), _claims(**values)) for values in odd))


@ATTEMPTS("PERMISSION_DENIED")
def has_more_signed_than_its_issuer_may_grant(outsider: Outsider) -> list[str]:
    tenants = ("c", "", "*", "A", "a ", "a\x00", "\ud800", "a" * 5000, ["a"], 1, True, {"a": 1})
    scopes = ("call admin", ["call", "write"], "CALL", 1, {"call": 1}, [["call"]], "")
    odd = [{"tenant": value} for value in tenants]
    return _statuses(
        outsider,
        [
            *(_signed(_header(), _claims(**values)) for values in odd),
            *(_signed(_header(), good_claims(scope=value)) for value in scopes),
        ],
    )


@ATTEMPTS("UNAUTHENTICATED")
def says_what_a_service_has_to_understand(outsider: Outsider) -> list[str]:
    odd: list[dict[str, Any]] = [
        {"crit": ["x"], "x": 1},
        {"crit": []},
        {"crit": "exp"},
        {"crit": ["b64"], "b64": False},
    ]
    return _statuses(outsider, (_signed(_header(**values), _claims()) for values in odd))


@ATTEMPTS("UNAUTHENTICATED")
def presents_what_is_no_token(outsider: Outsider) -> list[str]:
    good, deep = _signed(_header(), _claims()), b"[" * 1500 + b"]" * 1500
    many, long = b'{%b"alg":"ES256"}' % (b'"a":1,' * 500), b'{"alg":"ES256","x":%b}' % (b"9" * 4400)
    return _statuses(
        outsider,
        [
            "...", "..", ".", "a.b.c", "e30.e30.", "bnVsbA.bnVsbA.x", "W10.W10.x",
            f"{good}.", f".{good}", good.replace(".", "..", 1), f"{good},{good}", f"{good} {good}", good.upper(),
            f"{_encoded(deep)}.{_encoded(deep)}.x",
            f"{_encoded(many)}.e30.x", f"{_encoded(long)}.e30.x",
            _signed(_header(cty="JWT"), json.dumps(good).encode()),
        ],
    )  # fmt: skip


@ATTEMPTS("UNAUTHENTICATED")
def presents_a_good_token_beside_a_bad_one(outsider: Outsider) -> list[str]:
    good, bad = f"Bearer {outsider.token}", "Bearer another"
    return [_status(outsider, good, bad), _status(outsider, bad, good), _status(outsider, f"{good}, {bad}")]


@ATTEMPTS("UNAUTHENTICATED")
def presents_thousands_of_tokens_to_be_remembered(outsider: Outsider) -> list[str]:
    own = Key(ISSUERS_KEY.kid)
    forged = (_signed(_header(), _claims(sub=str(number)), own) for number in range(2000))
    return _statuses(outsider, forged)
