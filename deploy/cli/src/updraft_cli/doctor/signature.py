# SPDX-License-Identifier: Apache-2.0
"""Checks of a driver's key by which it signs functions, where a pool runs only what is signed."""

import hashlib
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
_LIFETIME_MILLISECONDS = 60_000
_MAKE = "make a key with `openssl genpkey -algorithm ed25519`, readable by the driver alone"
_ASK = "show this to whoever runs the pool, with the public key: openssl pkey -in KEY -pubout"


def check_signature(service: Service, confs: Mapping[str, str], findings: Findings) -> None:
    """Let the pool say whose the key of the conf is, by a statement about no function."""
    path = confs.get(KEY_FILE, "")
    if not path:
        findings.error("signature", "the pool runs only what its driver has signed", f"set {KEY_FILE}; {_MAKE}")
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
        signer = service.signer_of(_signed(key, confs.get(_TENANT, "")))
    except flight.FlightUnauthorizedError as error:
        findings.error("signature", first_line(error), _ASK)
    else:
        findings.ok("signature", f"the pool knows the key as {signer!r}")


def _signed(key: Ed25519PrivateKey, tenant: str) -> SignedStatement:
    now = int(time.time() * 1000)
    statement = Statement(
        owner=Owner(tenant=tenant, application_id="updraft-doctor"),
        issued_at_milliseconds=now,
        expires_at_milliseconds=now + _LIFETIME_MILLISECONDS,
    ).SerializeToString()
    public = key.public_key().public_bytes_raw()
    return SignedStatement(
        statement=statement, signature=key.sign(statement), key_sha256=hashlib.sha256(public).digest()
    )
