# SPDX-License-Identifier: Apache-2.0
"""Command `updraft tokens`, with an API server that stores what it receives; tests/kube tests a real one."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import kube_config

from updraft_cli.cluster import ClusterError, MissingError
from updraft_cli.commands.tokens import Tokens

_LABELS = {"app.kubernetes.io/instance": "air"}


def _owner(name: str) -> Any:
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "labels": _LABELS}} if name != "c-token" else None


class ApiServer(ThreadingHTTPServer):
    """Secrets by name (outside the namespace `data` by namespace/name), and service accounts of any name but c-token.

    `refusal` is the status of every answer instead, if it is not 0.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.secrets: dict[str, dict[str, Any]] = {}
        self.refusal = 0


class _Answer(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        kind, name = self.path.split("/")[-2:]
        found = self.server.secrets.get(self._key(name)) if kind == "secrets" else _owner(name)
        self._answer(200 if found else 404, found or {"message": f"{kind} {name} not found"})

    def do_POST(self) -> None:
        secret = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self._key(secret["metadata"]["name"])
        if name in self.server.secrets:
            self._answer(409, {"message": f"secrets {name} already exists"})
            return
        given = secret.pop("stringData")
        secret["data"] = {key: b64encode(value.encode()).decode() for key, value in given.items()}
        if not self.server.refusal:
            self.server.secrets[name] = secret
        self._answer(201, secret)

    def do_PATCH(self) -> None:
        change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        secret = self.server.secrets[self._key(self.path.split("/")[-1])]
        secret["data"] |= change["data"]
        self._answer(200, secret)

    def _key(self, name: str) -> str:
        namespace = self.path.partition("/namespaces/")[2].partition("/")[0]
        return name if namespace == "data" else f"{namespace}/{name}"

    def _answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(self.server.refusal or status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with ApiServer() as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        path = tmp_path / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "data"}}
        users = [{"name": "u", "user": {}}]
        path.write_text(
            yaml.safe_dump({"current-context": "c", "contexts": [context], "clusters": [cluster], "users": users})
        )
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        yield server
        server.shutdown()
        serving.join()


def test_each_secret_has_a_token_of_its_own_that_is_not_printed(
    api_server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    Tokens(names=["a-token", "b-token"]).cli_cmd()
    secrets = api_server.secrets
    assert set(secrets) == {"a-token", "b-token"}
    assert all(secret["data"]["token"] == secret["data"]["tokens"] for secret in secrets.values())
    assert all(len(secret["data"]["token"]) >= 48 for secret in secrets.values())
    assert secrets["a-token"]["data"] != secrets["b-token"]["data"]
    said = capsys.readouterr().out
    assert "Secret a-token has a new token." in said
    assert not any(secret["data"]["token"] in said for secret in secrets.values())


def test_a_secret_that_is_there_stays_as_it_is(api_server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    Tokens(names=["a-token"]).cli_cmd()
    before = dict(api_server.secrets)
    capsys.readouterr()
    Tokens(names=["a-token", "b-token"], output="json").cli_cmd()
    assert api_server.secrets["a-token"] == before["a-token"]
    assert json.loads(capsys.readouterr().out) == {"made": ["b-token"], "kept": ["a-token"]}


def test_a_secret_without_what_is_read_from_it_is_an_error(api_server: ApiServer) -> None:
    api_server.secrets["a-token"] = {"data": {"token": "dA=="}}
    with pytest.raises(
        ClusterError, match="a-token exists but lacks the key tokens: add the key, or delete the Secret"
    ):
        Tokens(names=["a-token"]).cli_cmd()


def test_each_secret_ends_with_the_service_account_of_its_name_and_has_its_labels(api_server: ApiServer) -> None:
    Tokens(names=["a-token", "b-token"], owned=True).cli_cmd()
    for name in ("a-token", "b-token"):
        metadata = api_server.secrets[name]["metadata"]
        (reference,) = metadata["ownerReferences"]
        assert (reference["kind"], reference["name"], reference["uid"]) == ("ServiceAccount", name, f"uid-of-{name}")
        assert metadata["labels"] == _LABELS


def test_an_owners_own_secret_stays_as_it_is(api_server: ApiServer) -> None:
    for _ in range(2):
        Tokens(names=["a-token"], owned=True).cli_cmd()
    assert list(api_server.secrets) == ["a-token"]


_OF_ONE_THAT_WENT = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "a-token", "uid": "another"}


@pytest.mark.parametrize("references", [[], [_OF_ONE_THAT_WENT]])
def test_a_secret_that_somebody_else_has_made_is_an_error(api_server: ApiServer, references: list[Any]) -> None:
    data = {"token": "dA==", "tokens": "dA=="}
    api_server.secrets["a-token"] = {"metadata": {"name": "a-token", "ownerReferences": references}, "data": data}
    with pytest.raises(ClusterError, match="a-token was not created for a-token, and its creator knows the token"):
        Tokens(names=["a-token"], owned=True).cli_cmd()


def test_without_its_owner_no_secret_is_made(api_server: ApiServer) -> None:
    with pytest.raises(MissingError, match="cannot find c-token in namespace data"):
        Tokens(names=["c-token"], owned=True).cli_cmd()
    assert api_server.secrets == {}


@pytest.mark.parametrize("status", [401, 403, 500])
def test_what_the_cluster_refuses_is_an_error(api_server: ApiServer, status: int) -> None:
    api_server.refusal = status
    with pytest.raises(ClusterError, match="cannot make Secret a-token in namespace data"):
        Tokens(names=["a-token"]).cli_cmd()


def _copy_once(**given: Any) -> None:
    Tokens(names=["a-token", "b-token"], copies=["etl/a-token"], owned=True, **given).cli_cmd()


def test_a_copy_for_jobs_elsewhere_has_what_they_present_alone(
    api_server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    _copy_once()
    secrets = api_server.secrets
    assert set(secrets) == {"a-token", "b-token", "etl/a-token"}
    assert secrets["etl/a-token"]["data"] == {"token": secrets["a-token"]["data"]["token"]}
    assert secrets["etl/a-token"]["metadata"]["ownerReferences"][0]["name"] == "a-token"
    assert "Secret a-token in etl has the token." in capsys.readouterr().out


def test_a_copy_follows_a_token_that_was_rotated(api_server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    _copy_once()
    api_server.secrets["a-token"]["data"] |= {"token": "bmV3"}
    capsys.readouterr()
    _copy_once(output="json")
    assert api_server.secrets["etl/a-token"]["data"] == {"token": "bmV3"}
    assert json.loads(capsys.readouterr().out) == {"made": ["etl/a-token"], "kept": ["a-token", "b-token"]}
    _copy_once(output="json")
    assert json.loads(capsys.readouterr().out) == {"made": [], "kept": ["a-token", "b-token", "etl/a-token"]}


def test_a_secret_of_somebody_else_is_not_overwritten_by_a_copy(api_server: ApiServer) -> None:
    theirs = {"metadata": {"name": "a-token"}, "data": {"token": "dA=="}}
    api_server.secrets["etl/a-token"] = theirs
    with pytest.raises(ClusterError, match="a-token was not created for a-token"):
        _copy_once()
    assert theirs["data"] == {"token": "dA=="}


def test_only_what_it_makes_is_copied(api_server: ApiServer) -> None:
    with pytest.raises(ClusterError, match="--copies etl/other: expected namespace/name"):
        Tokens(names=["a-token"], copies=["etl/other"]).cli_cmd()
