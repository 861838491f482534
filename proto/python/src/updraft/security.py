# SPDX-License-Identifier: Apache-2.0
"""Who may connect: TLS and mutual TLS with certificates that can be renewed, and static bearer tokens.

Files are read again when they change, so neither a renewed certificate nor a rotated token needs a restart. Health
checks need no token: kubelets and load balancers cannot send one, and the answer says only whether the service serves.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio
import structlog

from updraft.errors import UnauthenticatedError
from updraft.health import HEALTH_METHOD_PREFIX

_log = structlog.get_logger(__name__)

_BEARER = "Bearer "

Content = TypeVar("Content")
Fingerprint = tuple[tuple[int, int, int], ...]


class SecurityError(Exception):
    """Raised when a file of certificates or tokens cannot be used at the start; the message names it."""


class WatchedFiles(Generic[Content]):
    """Content parsed from files, parsed again when one of them changes.

    A change that cannot be read or parsed is logged, and the last good content stays in force.
    """

    def __init__(self, paths: tuple[Path, ...], parse: Callable[..., Content]) -> None:
        self._paths = paths
        self._parse = parse
        try:
            self._fingerprint = self._current_fingerprint()
            self._content = self._read()
        except OSError as error:
            raise SecurityError(f"cannot read {error.filename}: {error.strerror}") from error
        except ValueError as error:
            raise SecurityError(f"{error}: {', '.join(map(str, paths))}") from error

    @property
    def content(self) -> Content:
        """The content as of now."""
        self.refresh()
        return self._content

    def refresh(self) -> bool:
        """Read the files if they changed; true when there is new content."""
        try:
            fingerprint = self._current_fingerprint()
            if fingerprint == self._fingerprint:
                return False
            self._content = self._read()
        except (OSError, ValueError) as error:
            _log.warning("changed file cannot be used: the previous content stays in force", reason=str(error))
            return False
        self._fingerprint = fingerprint
        _log.info("changed files were read again", files=[str(path) for path in self._paths])
        return True

    def _current_fingerprint(self) -> Fingerprint:
        stats = [path.stat() for path in self._paths]
        return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)

    def _read(self) -> Content:
        return self._parse(*(path.read_bytes() for path in self._paths))


def server_credentials(certificate: Path, key: Path, client_ca: Path | None) -> grpc.ServerCredentials:
    """TLS credentials that follow their files; with `client_ca` clients must present a certificate signed by it.

    Raises SecurityError when a file cannot be read.
    """
    paths = (certificate, key) if client_ca is None else (certificate, key, client_ca)
    files = WatchedFiles(paths, _certificate_configuration)

    def renewed() -> Any:
        return files.content if files.refresh() else None

    return grpc.dynamic_ssl_server_credentials(
        files.content, renewed, require_client_authentication=client_ca is not None
    )


def _certificate_configuration(chain: bytes, key: bytes, client_ca: bytes | None = None) -> Any:
    if b"BEGIN CERTIFICATE" not in chain:
        raise ValueError("the certificate file holds no PEM certificate")
    if b"PRIVATE KEY" not in key:
        raise ValueError("the key file holds no PEM private key")
    return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=client_ca)


class BearerTokens:
    """The tokens of a file, one a line; blank lines and lines that start with # do not count."""

    def __init__(self, path: Path) -> None:
        self._files = WatchedFiles((path,), _token_digests)

    def check(self, authorization: str) -> None:
        """Raise UnauthenticatedError unless `authorization` is `Bearer <one of the tokens>`."""
        if not authorization.startswith(_BEARER):
            raise UnauthenticatedError("this service needs a token: send the header 'authorization: Bearer <token>'")
        presented = _digest(authorization.removeprefix(_BEARER).strip().encode())
        # All tokens are compared, in constant time each: how long it takes says nothing about them.
        matches = [hmac.compare_digest(presented, known) for known in self._files.content]
        if not any(matches):
            raise UnauthenticatedError("the token is not one that this service knows")


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _token_digests(content: bytes) -> tuple[bytes, ...]:
    lines = (line.strip() for line in content.splitlines())
    digests = tuple(_digest(line) for line in lines if line and not line.startswith(b"#"))
    if not digests:
        raise ValueError("the token file holds no token")
    return digests


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpcio has no types
    """Lets a call through when its token is known; health checks need none."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._tokens = tokens

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> grpc.RpcMethodHandler:
        """The handler of the call, or one that refuses it."""
        if not handler_call_details.method.startswith(HEALTH_METHOD_PREFIX):
            headers = dict(handler_call_details.invocation_metadata or ())
            try:
                self._tokens.check(str(headers.get("authorization", "")))
            except UnauthenticatedError as error:
                return _refusal(error)
        return await continuation(handler_call_details)


def _refusal(error: UnauthenticatedError) -> grpc.RpcMethodHandler:
    async def refuse(_requests: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode[error.code], error.status_message())

    # Ends any kind of call: a refusal has no message, and it waits for none.
    return grpc.stream_stream_rpc_method_handler(refuse)
