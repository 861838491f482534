# SPDX-License-Identifier: Apache-2.0
"""Tokens of Kubernetes service accounts: no scope, no tenant, and keys behind the cluster's own authority."""

import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from issuing import Key, entry, key_set

from updraft.errors import PermissionDeniedError, UnauthenticatedError
from updraft.service.authenticator import Authenticator
from updraft.service.identities_file import parse_identities
from updraft.service.identity import Identity, Scope
from updraft.service.issuer_keys import fetch_keys

CLUSTER = "https://kubernetes.default.svc.cluster.local"
KEY = Key("9a3Xw0Qm5c2u7Hn1", "RS256")
NAMESPACE_CLAIM = '["kubernetes.io", "namespace"]'
SUBJECTS = """[issuer.tenants_of_subjects]
"system:serviceaccount:team-a:*" = "team-a"
"system:serviceaccount:team-a:nightly" = "nightly"
"system:serviceaccount:team-b:spark" = "team-b"
"""


def token(namespace: str = "team-a", account: str = "spark", **others: Any) -> str:
    """Return a token as an API server issues it for a projected volume, with the audience of the pool."""
    now = int(time.time())
    claims: dict[str, Any] = {
        "aud": ["updraft"],
        "exp": now + 3607,
        "iat": now,
        "iss": CLUSTER,
        "jti": "0f5a9f0e-5b0c-4a53-9c2b-0a4b1f3b4c11",
        "kubernetes.io": {
            "namespace": namespace,
            "node": {"name": "node-7", "uid": "6b0a0dd4-9f5c-4d3e-8f3a-7c1a5b7f2e90"},
            "pod": {"name": "job-exec-1", "uid": "c6f1b1de-3e43-4c0e-93c5-1c0f1d0a9a57"},
            "serviceaccount": {"name": account, "uid": "2d7d2a2b-6f6c-4c0b-8a51-3c4f6f1f2b11"},
        },
        "nbf": now,
        "sub": f"system:serviceaccount:{namespace}:{account}",
        "tenant": None,
        "scope": None,
    }
    return KEY.token(**(claims | others))


class Cluster:
    """Identities file whose issuer is the cluster."""

    def __init__(self, directory: Path) -> None:
        self.keys = directory / "keys.json"
        self.keys.write_bytes(key_set(KEY))
        self.path = directory / "identities.toml"

    def authenticator(self, lines: str, subjects: str = "", keys: str = "", **more: Any) -> Authenticator:
        tenants = ["team-a", "team-b", "nightly"]
        table = {"tenants": tenants, "issuer": CLUSTER, "default_scopes": ["call", "session"], **more}
        keys = keys or f'keys_file = "{self.keys}"'
        self.path.write_text(f"{entry(keys, **table)}{lines}\n{subjects}")
        return Authenticator(None, self.path)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def identity(authenticator: Authenticator, presented: str) -> Identity:
    return authenticator.identity(f"Bearer {presented}")


def test_the_namespace_is_the_tenant_and_the_scopes_are_those_of_the_issuer(cluster: Cluster) -> None:
    authenticator = cluster.authenticator(f"tenant_claim = {NAMESPACE_CLAIM}")
    found = identity(authenticator, token())
    assert (found.name, found.tenant) == ("sign-on:system:serviceaccount:team-a:spark", "team-a")
    assert found.scopes == {Scope.CALL, Scope.SESSION}
    assert identity(authenticator, token("team-b")).tenant == "team-b"
    with pytest.raises(PermissionDeniedError, match="cannot act for the tenant 'team-c'"):
        identity(authenticator, token("team-c"))


@pytest.mark.parametrize(
    ("namespace", "account", "tenant"),
    [
        ("team-a", "spark", "team-a"),
        ("team-a", "nightly", "nightly"),
        ("team-b", "spark", "team-b"),
        ("team-b", "default", None),
        ("team-ab", "spark", None),
        ("team", "a:spark", None),
        ("TEAM-A", "spark", None),
    ],
)
def test_a_subject_has_the_tenant_that_the_file_says_or_none(
    cluster: Cluster, namespace: str, account: str, tenant: str | None
) -> None:
    authenticator = cluster.authenticator("", SUBJECTS)
    if tenant is not None:
        assert identity(authenticator, token(namespace, account)).tenant == tenant
        return
    with pytest.raises(PermissionDeniedError, match="the token's subject has no tenant here"):
        identity(authenticator, token(namespace, account))


@pytest.mark.parametrize("claims", [{"sub": None}, {"sub": ["system:serviceaccount:team-a:spark"]}, {"sub": ""}])
def test_who_has_no_subject_has_no_tenant_whatever_the_token_claims(cluster: Cluster, claims: dict[str, Any]) -> None:
    # PyJWT itself refuses a subject that is not a string.
    with pytest.raises((PermissionDeniedError, UnauthenticatedError)):
        identity(cluster.authenticator("", SUBJECTS), token(tenant="team-a", **claims))


@pytest.mark.parametrize("claim", [{}, {"kubernetes.io": "team-a"}, {"kubernetes.io": {"namespace": ["team-a"]}}])
def test_a_namespace_that_is_not_there_is_no_tenant(cluster: Cluster, claim: dict[str, Any]) -> None:
    authenticator = cluster.authenticator(f"tenant_claim = {NAMESPACE_CLAIM}")
    with pytest.raises(PermissionDeniedError, match=r"its claim 'kubernetes\.io\.namespace' has to be a string"):
        identity(authenticator, token(**({"kubernetes.io": None} | claim)))


def test_a_token_that_has_scopes_has_those_and_not_the_default(cluster: Cluster) -> None:
    authenticator = cluster.authenticator("", SUBJECTS)
    assert identity(authenticator, token(scope="call")).scopes == {Scope.CALL}
    nothing: list[Any] = ["", "openid", []]
    for scope in nothing:
        with pytest.raises(PermissionDeniedError, match="grants nothing here"):
            identity(authenticator, token(scope=scope))


def test_without_default_scopes_a_token_grants_nothing(cluster: Cluster) -> None:
    with pytest.raises(PermissionDeniedError, match="grants nothing here"):
        identity(cluster.authenticator("", SUBJECTS, default_scopes=[]), token())


def test_a_token_for_the_api_server_is_not_one_for_a_pool(cluster: Cluster) -> None:
    with pytest.raises(UnauthenticatedError, match="another audience"):
        identity(cluster.authenticator("", SUBJECTS), token(aud=[CLUSTER]))


@pytest.mark.parametrize(
    ("line", "subjects", "says"),
    [
        ('default_scopes = ["admin"]', "", "default_scopes of the issuer 'sign-on' are beyond its scopes: admin"),
        ("tenant_claim = []", "", r"issuer\.0\.tenant_claim"),
        ('keys_ca_file = "/ca.crt"', "", "but no keys_url"),
        ("", '[issuer.tenants_of_subjects]\n"*" = "team-a"', "expected a subject, or a prefix followed by"),
        ("", '[issuer.tenants_of_subjects]\n"a*b" = "team-a"', "expected a subject, or a prefix followed by"),
        ("", '[issuer.tenants_of_subjects]\n"a:*" = "team-z"', "a tenant that is not in its tenants"),
        ("", '[issuer.tenants_of_subjects]\n"a:*" = "*"', "a tenant that is not in its tenants"),
    ],
)
def test_a_file_that_would_grant_more_than_it_says_is_refused(line: str, subjects: str, says: str) -> None:
    text = entry(f'keys_file = "/keys"\n{line}\n{subjects}', tenants=["team-a"])
    with pytest.raises(ValueError, match=says):
        parse_identities(text.encode())


class _ApiServer(BaseHTTPRequestHandler):
    """API server that gives its keys to callers with the right token."""

    def do_GET(self) -> None:
        if self.headers["Authorization"] != "Bearer of-the-pool":
            self.send_error(401)
            return
        content = key_set(KEY)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def api_server(tmp_path: Path) -> Iterator[str]:
    """Start an API server, write its ca.crt and the expected token, and yield the address of its keys."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("of-the-pool\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with ThreadingHTTPServer(("localhost", 0), _ApiServer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://localhost:{server.server_port}/openid/v1/jwks"
        finally:
            server.shutdown()
            thread.join()


async def test_keys_are_fetched_from_an_api_server(tmp_path: Path, cluster: Cluster, api_server: str) -> None:
    keys = f'keys_url = "{api_server}"\nkeys_ca_file = "{tmp_path}/ca.crt"\nkeys_token_file = "{tmp_path}/token"'
    found = await cluster.authenticator("", SUBJECTS, keys).identify(f"Bearer {token()}")
    assert found.tenant == "team-a"


def test_an_api_server_of_another_authority_gets_no_token_and_gives_no_keys(tmp_path: Path, api_server: str) -> None:
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch_keys(api_server, token_file=tmp_path / "token")
    with pytest.raises(OSError, match="401"):
        fetch_keys(api_server, ca_file=tmp_path / "ca.crt")
    (tmp_path / "token").write_text("two tokens\n")
    with pytest.raises(ValueError, match="does not hold a token"):
        fetch_keys(api_server, ca_file=tmp_path / "ca.crt", token_file=tmp_path / "token")
