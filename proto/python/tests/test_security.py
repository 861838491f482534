# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
import trustme

from updraft.errors import UnauthenticatedError
from updraft.security import BearerTokens, SecurityError, server_credentials


def test_any_token_of_the_file_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("one\n\n# comment\n  two  \n")
    tokens = BearerTokens(tmp_path / "tokens")
    tokens.check("Bearer one")
    tokens.check("Bearer two")


@pytest.mark.parametrize(
    "header", ["", "one", "Basic one", "Bearer", "Bearer ", "Bearer on", "Bearer # comment", "bearer one"]
)
def test_anything_else_is_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "tokens").write_text("one\n# comment\n")
    with pytest.raises(UnauthenticatedError):
        BearerTokens(tmp_path / "tokens").check(header)


@pytest.mark.parametrize("content", ["", "\n", "# only a comment\n"])
def test_a_file_without_tokens_is_refused_at_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(SecurityError, match="no token"):
        BearerTokens(tmp_path / "tokens")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match="tokens"):
        BearerTokens(tmp_path / "tokens")


def test_an_emptied_file_leaves_the_previous_tokens_in_force(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("one\n")
    tokens = BearerTokens(path)
    path.write_text("")
    tokens.check("Bearer one")
    path.unlink()
    tokens.check("Bearer one")


def test_files_that_are_no_certificate_or_key_are_refused_at_the_start(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(certificate)
    key.write_text("nonsense")
    with pytest.raises(SecurityError, match="private key"):
        server_credentials(certificate, key, None)
    issued.private_key_pem.write_to_path(key)
    certificate.write_text("nonsense")
    with pytest.raises(SecurityError, match="certificate"):
        server_credentials(certificate, key, None)
