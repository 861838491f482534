# SPDX-License-Identifier: Apache-2.0
"""Where a client's address and credentials come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from updraft.client.connection import Connection
from updraft.client.credentials import CredentialsError


def test_an_option_has_precedence_over_the_environment(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("# of the pool\nsecret\n")
    environment = {"UPDRAFT_CLIENT_ENDPOINT": "grpc://a:1", "UPDRAFT_CLIENT_TOKEN_FILE": str(token)}
    found = Connection.of({"endpoint": "grpc://b:2", "tenant": "us"}, environment)
    assert str(found.endpoint) == "grpc://b:2"
    assert found.metadata == (("authorization", "Bearer secret"), ("x-updraft-tenant", "us"))
    assert str(Connection.of({}, environment).endpoint) == "grpc://a:1"
    assert Connection.of({"token": "other"}, environment).metadata == (("authorization", "Bearer other"),)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match=r"no pool is named: pass endpoint=.*UPDRAFT_CLIENT_ENDPOINT"):
        Connection.of({}, {})
    with pytest.raises(ValueError, match="'pool:8815' is not an endpoint"):
        Connection.of({"endpoint": "pool:8815"}, {})
    options: Any = {"endpoint": "grpc://a:1", "tokn": "x"}
    with pytest.raises(TypeError, match="unknown option 'tokn': the options of a connection are endpoint, token"):
        Connection.of(options, {})
    with pytest.raises(CredentialsError, match="/nowhere cannot be read"):
        Connection.of({"endpoint": "grpc://a:1", "token_file": "/nowhere"}, {})
