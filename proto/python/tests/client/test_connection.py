# SPDX-License-Identifier: Apache-2.0
"""Sources of a client's address and credentials."""

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


def test_a_rotated_token_is_used_by_the_next_call(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    connection = Connection.of({"endpoint": "grpc://a:1", "token_file": token}, {})
    token.write_text("new\n")
    assert connection.metadata == (("authorization", "Bearer new"),)
    token.unlink()
    assert connection.metadata == (("authorization", "Bearer old"),)


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
    with pytest.raises(ValueError, match="certificate_file and key_file go together"):
        Connection.of({"endpoint": "grpc+tls://a:1", "certificate_file": "a.pem"}, {})


@pytest.mark.parametrize("name", ["token", "tenant"])
def test_a_value_that_no_header_carries_is_refused_and_not_shown(name: str) -> None:
    for value in ("s3cret\n", "s3cret\r\nx-updraft-tenant: other", "s3cr\u00e9t"):
        options: Any = {"endpoint": "grpc://a:1", name: value}
        with pytest.raises(ValueError, match=f"the {name} has characters that a header cannot carry") as raised:
            Connection.of(options, {})
        assert "s3cr" not in str(raised.value)


def test_a_connection_is_shown_without_its_token() -> None:
    assert "s3cret" not in repr(Connection.of({"endpoint": "grpc://a:1", "token": "s3cret"}, {}))
