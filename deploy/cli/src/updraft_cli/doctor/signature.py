# SPDX-License-Identifier: Apache-2.0
"""Checks of a driver's key by which it signs functions, where a pool looks at signatures."""

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
# As Spark reads durations; one without a unit is of milliseconds.
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
_ASK = "show this to whoever runs the pool, with the public key: openssl pkey -in KEY -pubout"


def check_signature(service: Service, confs: Mapping[str, str], findings: Findings, *, required: bool) -> None:
    """Let the pool say whose the key of the conf is, by a statement about no function that holds as long as the job's.

    `required` is whether the pool runs nothing else.
    """
    path = confs.get(KEY_FILE, "")
    if not path and not required:
        findings.warning(
            "signature",
            "the job signs nothing; the pool runs that, counts it, and may be told to refuse it",
            f"set {KEY_FILE}; {_MAKE}",
        )
        return
    if not path:
        findings.error("signature", "the pool runs only what its driver has signed", f"set {KEY_FILE}; {_MAKE}")
        return
    lifetime_milliseconds = _milliseconds(confs.get(LIFETIME, "").strip() or _DEFAULT_LIFETIME)
    if lifetime_milliseconds is None:
        findings.error(
            "signature", f"{LIFETIME} = {confs[LIFETIME]!r} is no duration", "write it as Spark does: 12h, 7d"
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
        # The refusal says what to do itself where the key is one that the pool knows.
        findings.error("signature", problem, f"lower {LIFETIME}, or {_ASK}" if LIFETIME in problem else _ASK)
    else:
        findings.ok("signature", f"the pool knows the key as {signer!r}")


def _milliseconds(duration: str) -> int | None:
    """Of a duration as Spark writes it; None: it is none."""
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
