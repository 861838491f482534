# SPDX-License-Identifier: Apache-2.0
"""Secret by which a pool recognises this user's calls even if other users send the same token, or no token.

The pool shows what a call printed, and where it spends its time, to callers that send the key of that call. Each pool
gets a different key, derived from the secret, so that no pool learns the keys for other pools.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from updraft.client.credentials import CredentialsError
from updraft.client.endpoint import Endpoint

_BYTES = 32


def default_file(environment: Mapping[str, str]) -> Path | None:
    """Return the path for the secret in this user's directory, or None if the user has no such directory."""
    if state := environment.get("XDG_STATE_HOME"):
        return Path(state) / "updraft/log-key"
    return Path(home) / ".local/state/updraft/log-key" if (home := environment.get("HOME")) else None


def log_key(file: Path | None, endpoint: Endpoint) -> str:
    """Return the key for the pool at an endpoint; empty if the file is missing or too short for a secret."""
    secret = ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        secret = file.read_text().strip() if file is not None else ""
    if len(secret) < _BYTES:
        return ""
    return hmac.digest(secret.encode(), str(endpoint).encode(), hashlib.sha256).hex()


def make_secret(file: Path | None) -> None:
    """Create the file if it is missing, readable only by this user; raise CredentialsError."""
    if file is None:
        raise CredentialsError("this user has no directory for a log key: name a file with UPDRAFT_CLIENT_LOG_KEY_FILE")
    if file.exists():
        return
    temporary = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as written:
            written.write(secrets.token_hex(_BYTES) + "\n")
        # If another command creates the file at the same time, keep the file that appeared first.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, file)
        temporary.unlink()
    except OSError as error:
        raise CredentialsError(f"{file} cannot be made for the log key: {error.strerror}") from None
