# SPDX-License-Identifier: Apache-2.0
"""Checks of the key that a driver signs functions with, for pools that verify signatures."""

import hashlib
import re
import time
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pyarrow import flight

from updraft.v1.exchange_pb2 import Owner, SignedStatement, Statement
from updraft_cli.doctor.confs import KEY_FILE
from updraft_cli.doctor.finding import Findings
from updraft_cli.service import Service, first_line

_TENANT = "spark.updraft.udf.tenant"
LIFETIME = "spark.updraft.udf.signatureLifetime"
_DEFAULT_LIFETIME = "7d"
# Spark's syntax for durations; a duration without a unit is in milliseconds.
_DURATION = re.compile(r"([0-9]+)\s*(us|ms|s|m|min|h|d)?")
_UNIT_MILLISECONDS = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_MAKE = "make a key with `openssl genpkey -algorithm ed25519`, readable by the driver alone"
_ASK = "send this to the pool's operator, with the public key: openssl pkey -in KEY -pubout"


def check_signature(service: Service, confs: Mapping[str, str], findings: Findings, *, required: bool) -> None:
    """Ask the pool which signer owns the conf's key, by sending a signed statement that names no function.

    The statement is valid for as long as the job's own statements. `required` says whether the pool refuses unsigned
    functions.
    """
    path = confs.get(KEY_FILE, "")
    if not path and not required:
        findings.warning(
            "signature",
            "the job signs no functions; the pool runs and counts them, and can be set to refuse them",
            f"set {KEY_FILE}; {_MAKE}",
        )
        return
    if not path:
        findings.error(
            "signature", "the pool runs only functions that their driver has signed", f"set {KEY_FILE}; {_MAKE}"
        )
        return
    lifetime_milliseconds = _milliseconds(confs.get(LIFETIME, "").strip() or _DEFAULT_LIFETIME)
    if lifetime_milliseconds is None:
        findings.error(
            "signature", f"{LIFETIME} = {confs[LIFETIME]!r} is not a duration", "write it as Spark does: 12h, 7d"
        )
        return
    try:
        key = load_pem_private_key(Path(path).read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        findings.error("signature", f"{KEY_FILE}: {error}", f"correct the path; {_MAKE}")
        return
    if not isinstance(key, Ed25519PrivateKey):
        findings.error("signature", f"{KEY_FILE}: the key of {path} is not for Ed25519", _MAKE)
        return
    try:
        signer = service.signer_of(_signed(key, confs.get(_TENANT, ""), lifetime_milliseconds))
    except flight.FlightUnauthorizedError as error:
        problem = first_line(error)
        # If the refusal names the setting, the pool knows the key and refuses only the lifetime.
        findings.error("signature", problem, f"lower {LIFETIME}, or {_ASK}" if LIFETIME in problem else _ASK)
    else:
        findings.ok("signature", f"the pool knows the key as {signer!r}")


def _milliseconds(duration: str) -> int | None:
    """Return the milliseconds of a duration in Spark's syntax, or None if it is invalid."""
    found = _DURATION.fullmatch(duration.lower())
    return int(int(found[1]) * _UNIT_MILLISECONDS[found[2] or "ms"]) if found else None


def _signed(key: Ed25519PrivateKey, tenant: str, lifetime_milliseconds: int) -> SignedStatement:
    now = int(time.time() * 1000)
    statement = Statement(
        owner=Owner(tenant=tenant, application_id="updraft-doctor"),
        issued_at_milliseconds=now,
        expires_at_milliseconds=now + lifetime_milliseconds,
    ).SerializeToString()
    public = key.public_key().public_bytes_raw()
    return SignedStatement(
        statement=statement, signature=key.sign(statement), key_sha256=hashlib.sha256(public).digest()
    )
