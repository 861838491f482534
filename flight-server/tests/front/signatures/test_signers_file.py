# SPDX-License-Identifier: Apache-2.0
"""File of the drivers whose signatures the front accepts."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from signing import Driver

from updraft_server.front.signatures.signers_file import parse_signers

PEM = Driver().public_pem
PRIVATE = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
OF_ANOTHER_KIND = (
    ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
).decode()


def signer(key: str = PEM, more: str = "") -> str:
    return f'[[signer]]\nname = "a"\npublic_key = """\n{key}"""\n{more}\n'


def test_the_defaults() -> None:
    (found,) = parse_signers(signer().encode()).by_key.values()
    assert (found.name, found.tenants, found.max_lifetime_seconds) == ("a", None, 7 * 24 * 60 * 60)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (signer(PRIVATE), "'a' has a private key here, which belongs on the driver alone"),
        (signer(OF_ANOTHER_KIND), "is not for Ed25519: openssl genpkey -algorithm ed25519"),
        (signer("nothing"), "the public_key of 'a' is not one in PEM"),
        (signer(more="max_lifetime_days = 0"), "max_lifetime_days"),
        (signer(more="tenants = []"), "tenants"),
        (signer(more='scope = "x"'), "scope: Extra inputs are not permitted"),
        (signer() + signer().replace('"a"', '"b"'), "'a' and 'b' have the same public key"),
        ('[revoked]\nfunctions = ["51ab"]\n', "revoked.functions.0"),
        ('[[signer]]\nname = "a"\n', "public_key"),
        ("signer = 1", "signer"),
        ("[[signer]", "Expected ']]'"),
    ],
)
def test_what_it_cannot_mean_is_said(content: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("[", r"\[").replace("]", r"\]")):
        parse_signers(content.encode())
