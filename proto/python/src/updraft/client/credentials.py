# SPDX-License-Identifier: Apache-2.0
"""Credentials of a client and the authorities that it trusts, read from files. Errors name the file."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from updraft.token_file import first_token


class CredentialsError(Exception):
    """Raised when a file cannot be used; the message names the file."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Token and TLS files of one client."""

    token: str = field(default="", repr=False)
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Request headers of every call."""
        return [("authorization", f"Bearer {self.token}")] if self.token else []

    def ssl_context(self) -> ssl.SSLContext:
        """Return the context for a TLS handshake; raises CredentialsError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise CredentialsError(f"{self.ca_file} has no readable certificates: {_reason(error)}") from None
        if self.certificate_file is not None:
            try:
                context.load_cert_chain(self.certificate_file, self.key_file)
            except (OSError, ssl.SSLError) as error:
                files = f"{self.certificate_file} and {self.key_file}"
                raise CredentialsError(f"{files} are not a certificate and its key: {_reason(error)}") from None
        context.set_alpn_protocols(["h2"])
        return context

    def grpc_credentials(self) -> grpc.ChannelCredentials:
        """Return the channel credentials for gRPC; raises CredentialsError."""
        self.ssl_context()
        return grpc.ssl_channel_credentials(self.roots, _content(self.key_file), _content(self.certificate_file))

    @property
    def roots(self) -> bytes | None:
        """Trusted authorities in PEM, from `ca_file` or else from this machine."""
        system = ssl.get_default_verify_paths().cafile
        return _content(self.ca_file or (Path(system) if system else None))


def token_in(path: Path) -> str:
    """Return the first token of a file, in which # starts a comment; raises CredentialsError."""
    token = first_token(read(path))
    if not token:
        raise CredentialsError(f"{path} has no token")
    return token


def read(path: Path) -> str:
    """Return the text of a file; raises CredentialsError."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{path} cannot be read: {_reason(error)}") from None


def _content(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None else None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
