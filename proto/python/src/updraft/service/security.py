# SPDX-License-Identifier: Apache-2.0
"""Who may connect: TLS and mutual TLS with certificates that can be renewed, and static bearer tokens.

Files are read again when they change, so neither a renewed certificate nor a rotated token needs a restart. If a
certificate file becomes unusable, the last certificate stays valid. If a token file does, no token is valid.
Health checks need no token: kubelets and load balancers cannot send one, and the answer says only whether the service
serves.
"""

import hashlib
import hmac
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio
import structlog

from updraft.errors import UnauthenticatedError
from updraft.service.health import HEALTH_METHOD_PREFIX
from updraft.service.lifecycle import StartError

_log = structlog.get_logger(__name__)

_BEARER = "Bearer "
_MAX_FILE_BYTES = 1024 * 1024
# Long enough to rewrite the file in place, short enough to revoke a token.
_GRACE_SECONDS = 2.0

Content = TypeVar("Content")
Fingerprint = tuple[tuple[int, int, int, int], ...]


class SecurityError(StartError):
    """Raised when a file of certificates or tokens cannot be used at the start; the message names it."""


class WatchedFiles(Generic[Content]):
    """The parsed content of files, which are read again when one of them changes.

    A change that cannot be read or parsed is logged once, and the last good content stays. `unconfirmed_seconds` says
    for how long it has been out of date.
    """

    def __init__(
        self, paths: tuple[Path, ...], parse: Callable[..., Content], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._paths = paths
        self._parse = parse
        self._clock = clock
        self._problem = ""
        self._confirmed_seconds = clock()
        try:
            self._fingerprint = self._current_fingerprint()
            self._content = self._read()
        except OSError as error:
            raise SecurityError(f"cannot read {error.filename}: {error.strerror}") from error
        except ValueError as error:
            raise SecurityError(f"{error}: {self._names}") from error

    @property
    def content(self) -> Content:
        """The current content, or the last good one."""
        self.refresh()
        return self._content

    @property
    def unconfirmed_seconds(self) -> float:
        """Time since the files were last found usable; 0 if the last check found them usable."""
        return self._clock() - self._confirmed_seconds if self._problem else 0.0

    def refresh(self) -> bool:
        """Check the files and read them if they changed; true if there is new content."""
        try:
            fingerprint = self._current_fingerprint()
            is_new = fingerprint != self._fingerprint or bool(self._problem)
            if is_new:
                self._content = self._read()
        except (OSError, ValueError) as error:
            if not self._problem:
                _log.error("changed file cannot be used", files=self._names, reason=str(error))
            self._problem = str(error)
            return False
        if is_new:
            _log.info("changed files were read again", files=self._names)
        self._fingerprint = fingerprint
        self._problem = ""
        self._confirmed_seconds = self._clock()
        return is_new

    @property
    def _names(self) -> str:
        return ", ".join(map(str, self._paths))

    def _current_fingerprint(self) -> Fingerprint:
        stats = [path.stat() for path in self._paths]
        # The change time is the kernel's own; a copy that preserves times can set the modification time.
        return tuple((stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_size) for stat in stats)

    def _read(self) -> Content:
        return self._parse(*map(_read_file, self._paths))


def _read_file(path: Path) -> bytes:
    """The file's bytes; raises OSError, and ValueError if it is too large. Never blocks, even on a pipe."""
    content = b""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        while len(content) <= _MAX_FILE_BYTES and (piece := os.read(descriptor, _MAX_FILE_BYTES)):
            content += piece
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"the file has more than {_MAX_FILE_BYTES} bytes")
    return content


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
    """The tokens of a file, one per line; blank lines and lines that start with # are ignored.

    When the file has been missing or unusable for two seconds, no token is valid until it is usable again: removing the
    file revokes the tokens. Every check looks at the file. Call `refresh` more often than every two seconds, so that
    the file is also watched while no client calls.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._files = WatchedFiles((path,), _token_digests, clock)
        self._valid = self._files.content

    def refresh(self) -> None:
        """Check the file, and log if that revokes all tokens or restores them."""
        known = self._files.content
        if self._files.unconfirmed_seconds > _GRACE_SECONDS:
            if self._valid:
                _log.error("no token is valid any more: the token file cannot be used", file=str(self._path))
            self._valid = ()
        else:
            if not self._valid:
                _log.warning("tokens are valid again: the token file can be used", file=str(self._path))
            self._valid = known

    def check(self, authorization: str) -> None:
        """Raise UnauthenticatedError unless `authorization` is `Bearer <one of the tokens>`."""
        if not authorization.startswith(_BEARER):
            raise UnauthenticatedError("this service needs a token: send the header 'authorization: Bearer <token>'")
        presented = _digest(authorization.removeprefix(_BEARER).strip().encode())
        self.refresh()
        if not self._valid:
            raise UnauthenticatedError(
                "no token is valid: this service cannot use its token file, and its log says why"
            )
        # Compares all tokens, each in constant time, so that the duration reveals nothing.
        matches = [hmac.compare_digest(presented, known) for known in self._valid]
        if not any(matches):
            raise UnauthenticatedError("the token is not one that this service knows")


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _token_digests(content: bytes) -> tuple[bytes, ...]:
    lines = [(number, line.strip()) for number, line in enumerate(content.splitlines(), 1)]
    tokens = [(number, line) for number, line in lines if line and not line.startswith(b"#")]
    if not tokens:
        raise ValueError("the token file holds no token")
    for number, token in tokens:
        # No header can carry this line, so this is not a token file: none of its lines is valid.
        if not (token.isascii() and token.decode("ascii").isprintable()):
            raise ValueError(f"line {number} of the token file is not a token: expected printable ASCII")
    return tuple(_digest(token) for _, token in tokens)


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpcio has no types
    """Admits calls with a valid token; health checks need none."""

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

    # Works for every kind of call: a refusal sends no message and waits for none.
    return grpc.stream_stream_rpc_method_handler(refuse)
