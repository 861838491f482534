# SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS with renewable certificates, and static bearer tokens.

The service rereads files that change, so neither a renewed certificate nor a rotated token needs a restart. If a
certificate file becomes unusable, the last certificate stays valid. If a token file becomes unusable, no token is
valid. Health checks need no token: kubelets and load balancers cannot send a token, and the answer only says whether
the service is serving.
"""

import hashlib
import hmac
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
import structlog

from updraft.errors import UnauthenticatedError
from updraft.service.lifecycle import StartError

_log = structlog.get_logger(__name__)

_BEARER = "Bearer "
_MAX_FILE_BYTES = 1024 * 1024
# Long enough to rewrite the file in place, short enough to revoke tokens promptly.
_GRACE_SECONDS = 2.0

Content = TypeVar("Content")
Fingerprint = tuple[tuple[int, int, int, int], ...]


class SecurityError(StartError):
    """Raised when a certificate or token file cannot be used at the start; the message names the file."""


class WatchedFiles(Generic[Content]):
    """Parsed content of files, which are reread when one of them changes.

    A change that cannot be read or parsed is logged once, and the last good content stays. `unconfirmed_seconds` says
    for how long the files have been unusable.
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
        """Current content, or the last good content if the files cannot be used now."""
        self.refresh()
        return self._content

    @property
    def unconfirmed_seconds(self) -> float:
        """Seconds since the files were last usable; 0 if the last check found them usable."""
        return self._clock() - self._confirmed_seconds if self._problem else 0.0

    def refresh(self) -> bool:
        """Check the files and reread them if they changed; return whether there is new content."""
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
        # Include the change time, which only the kernel can set: a copy may keep its original's modification time.
        return tuple((stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_size) for stat in stats)

    def _read(self) -> Content:
        return self._parse(*map(_read_file, self._paths))


def _read_file(path: Path) -> bytes:
    """Return the file's bytes; raise OSError, or ValueError if it is too large. Never block, even on a pipe."""
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
    """Return TLS credentials that follow changes of their files.

    With `client_ca`, clients must present a certificate that this authority has signed.

    Raises:
        SecurityError: A file cannot be read.
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


class Revocable(Generic[Content]):
    """Credentials or keys granted by a file, which are revoked when the file is removed.

    If the file has been missing or unusable for two seconds, it grants nothing until it is usable again. Every access
    checks the file. Call `refresh` at least every two seconds, so that the file is also watched while the service is
    idle.
    """

    def __init__(
        self, path: Path, parse: Callable[[bytes], Content], noun: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the file; raise SecurityError if the file cannot be used.

        Args:
            path: Path of the file.
            parse: Function that parses the file's bytes, or raises ValueError.
            noun: Word for what the file grants, such as "token", for logs.
            clock: Monotonic clock, in seconds.
        """
        self._path = path
        self._noun = noun
        self._files = WatchedFiles((path,), parse, clock)
        self._valid: Content | None = self._files.content

    @property
    def current(self) -> Content | None:
        """Content that the file grants now, or None if it grants nothing."""
        self.refresh()
        return self._valid

    def refresh(self) -> None:
        """Check the file; log if a change has revoked or restored what the file grants."""
        known = self._files.content
        if self._files.unconfirmed_seconds > _GRACE_SECONDS:
            if self._valid is not None:
                _log.error(
                    f"no {self._noun} is valid any more: the {self._noun} file cannot be used", file=str(self._path)
                )
            self._valid = None
        else:
            if self._valid is None:
                _log.warning(f"{self._noun}s are valid again: the {self._noun} file can be used", file=str(self._path))
            self._valid = known


class BearerTokens:
    """Tokens of a file, one per line; blank lines and lines that start with # are ignored."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._granted = Revocable(path, _token_digests, "token", clock)

    def refresh(self) -> None:
        """See `Revocable`."""
        self._granted.refresh()

    def check(self, authorization: str) -> None:
        """Raise UnauthenticatedError unless `authorization` is `Bearer <one of the tokens>`."""
        presented = bearer_digest(authorization)
        if presented is None:
            raise UnauthenticatedError("this service needs a token: send the header 'authorization: Bearer <token>'")
        valid = self._granted.current
        if valid is None:
            raise UnauthenticatedError(
                "no token is valid: this service cannot use its token file, and its log says why"
            )
        # Compare with every token, each in constant time, so that the duration reveals nothing.
        matches = [hmac.compare_digest(presented, known) for known in valid]
        if not any(matches):
            raise UnauthenticatedError("the token is not one that this service knows")


def bearer_token(authorization: str) -> str | None:
    """Return the token of an authorization header, or None if the header is not `Bearer <token>`."""
    return authorization.removeprefix(_BEARER).strip() if authorization.startswith(_BEARER) else None


def bearer_digest(authorization: str) -> bytes | None:
    """Return the SHA-256 digest of the token of an authorization header, or None if it has no token."""
    token = bearer_token(authorization)
    return None if token is None else hashlib.sha256(token.encode()).digest()


def _token_digests(content: bytes) -> tuple[bytes, ...]:
    lines = [(number, line.strip()) for number, line in enumerate(content.splitlines(), 1)]
    tokens = [(number, line) for number, line in lines if line and not line.startswith(b"#")]
    if not tokens:
        raise ValueError("the token file holds no token")
    for number, token in tokens:
        # A header cannot carry this line, so this is not a token file: reject the whole file.
        if not (token.isascii() and token.decode("ascii").isprintable()):
            raise ValueError(f"line {number} of the token file is not a token: expected printable ASCII")
    return tuple(hashlib.sha256(token).digest() for _, token in tokens)


EXPIRY = "updraft_certificate_expiry_timestamp_seconds"
EXPIRY_DOC = (
    "When the first certificate of --tls-certificate-file expires, in seconds since 1970; 0: it cannot be read."
)


def expiry_timestamp_seconds(path: Path) -> float:
    """Return the earliest time at which a certificate of a PEM file expires, in seconds since 1970.

    Return 0.0 if the file cannot be read.
    """
    # The import takes a tenth of a second, so do it only for a service with TLS.
    from cryptography import x509

    try:
        chain = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return 0.0
    return min(certificate.not_valid_after_utc.timestamp() for certificate in chain)
