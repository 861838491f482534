# SPDX-License-Identifier: Apache-2.0
"""Checks of what a client may do, by its identity as the service sees it.

A service does not tell an unknown client why it is unknown. But the holder of a token can read the token, so this
module reports what the token of an unknown client says.
"""

import base64
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from cryptography import x509

from updraft.client.credentials import Credentials
from updraft_cli.doctor.finding import Findings
from updraft_cli.service import Caller

_EXPIRES_SOON_SECONDS = 300.0
_MOST_CHARACTERS = 200

WHAT_SCOPES_ALLOW = {
    "call": "run registered functions",
    "session": "run the functions that a Spark job ships",
    "write": "write files",
}


def check_caller(caller: Caller, wanted: tuple[str, ...], tenant: str, findings: Findings) -> None:
    """Report the client's identity as the service sees it, and check that it has the scopes that the job needs.

    `wanted` holds the scopes that the job needs. `tenant` is the tenant in the job's conf; empty if the conf names
    none. A token that expires soon is a warning.
    """
    findings.ok("identity", _in_words(caller))
    decided = "the service's operator decides that, in its identities file"
    for scope in wanted:
        if scope not in caller.scopes:
            findings.error(
                "scope",
                f"{caller.identity!r} may not {WHAT_SCOPES_ALLOW[scope]}: it needs the scope {scope}, but has "
                f"{', '.join(caller.scopes) or 'none'}",
                f"ask for the scope {scope}, or use a credential that has it; {decided}",
            )
    if tenant and caller.tenant not in (None, tenant):
        findings.error(
            "tenant",
            f"the conf names the tenant {tenant!r}, but {caller.identity!r} belongs to {caller.tenant!r}",
            f"remove the tenant from the conf, or use a credential of {tenant!r}",
        )
    if caller.expires_seconds is not None:
        left_seconds = caller.expires_seconds - datetime.now(UTC).timestamp()
        if left_seconds < _EXPIRES_SOON_SECONDS:
            findings.warning(
                "token",
                f"the token expires in {max(0, round(left_seconds))} seconds",
                "renew the file of tokenFile before then: the connector reads it for each call",
            )


def what_to_do(credentials: Credentials) -> str:
    """Return advice for an unknown client: what the client presents, and what would make the service accept it."""
    if credentials.token:
        claims = _claims_of(credentials.token)
        if claims is not None:
            return _about_issued(claims)
        digest = hashlib.sha256(credentials.token.encode()).hexdigest()
        return (
            "set tokenFile to a file with the service's token (key `token` of the chart's Secret), or have the digest "
            f"of this token added to token_sha256 of an identity in the service's identities file: {digest}"
        )
    if credentials.certificate_file is not None:
        names = ", ".join(_names_of(credentials)) or "none"
        return (
            "set tokenFile, or have a name of this certificate added to `certificates` of an identity in the service's "
            f"identities file; its names: {names}"
        )
    return "set tokenFile to a file with the service's token (key `token` of the chart's Secret)"


def _in_words(caller: Caller) -> str:
    tenant = "of the tenant that the job names" if caller.tenant is None else f"of the tenant {caller.tenant!r}"
    words = f"{caller.identity!r} {tenant}, with the scopes {', '.join(caller.scopes) or 'none'}"
    if caller.roots:
        words += f", below {', '.join(caller.roots)}"
    if caller.expires_seconds is not None:
        words += f"; its token expires at {_moment(caller.expires_seconds)}"
    return words


def _about_issued(claims: dict[str, Any]) -> str:
    """Describe a JSON Web Token by its own claims, which its holder may read."""
    said = [f"{name} {_shown(claims[name])}" for name in ("iss", "aud", "sub", "kid") if name in claims]
    for name, label in (("nbf", "valid from"), ("exp", "expires")):
        if isinstance(claims.get(name), int | float):
            said.append(f"{label} {_moment(claims[name])}")
    expires = claims.get("exp")
    if isinstance(expires, int | float) and expires < datetime.now(UTC).timestamp():
        return f"the token has expired: get a new one ({'; '.join(said)})"
    return (
        "it is a JSON Web Token: the service's identities file needs an [[issuer]] with its issuer and audience, whose "
        f"keys have its kid; the service's log says what was wrong with it ({'; '.join(said)})"
    )


def _claims_of(token: str) -> dict[str, Any] | None:
    """Return the unverified claims of a JSON Web Token, with the id of its key; None for any other token."""
    try:
        header, body, _ = (_decoded(part) for part in token.split("."))
        found = {**json.loads(body), "kid": json.loads(header).get("kid", "none")}
    except (ValueError, TypeError, AttributeError):
        return None
    return found


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _shown(value: Any) -> str:
    return json.dumps(value)[:_MOST_CHARACTERS]


def _moment(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "a time out of range"


def _names_of(credentials: Credentials) -> list[str]:
    """Return the names that a service may use for the client's certificate: SPIFFE ids and common name."""
    assert credentials.certificate_file is not None
    try:
        certificate = x509.load_pem_x509_certificate(credentials.certificate_file.read_bytes())
    except (OSError, ValueError):
        return []
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        ids = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        ids = []
    common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return [*ids, *(str(attribute.value) for attribute in common)]
