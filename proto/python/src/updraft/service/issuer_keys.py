# SPDX-License-Identifier: Apache-2.0
"""Public keys of a token issuer, from a file or a URL. Only a service that knows issuers imports this module."""

import contextlib
import hashlib
import http.client
import json
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

_log = structlog.get_logger(__name__)

_MIN_RSA_BITS, _MAX_RSA_BITS = 2048, 8192
_MAX_KEYS = 64
_MAX_REPLY_BYTES = 256 * 1024
_READ_BYTES = 16 * 1024
FETCH_SECONDS = 5.0
"""Time limit for a whole fetch."""
_GIVEN_UP_SECONDS = 30.0
"""Age at which a running fetch counts as lost, so that another fetch may start."""
REFRESH_SECONDS = 30.0
"""Interval of fetches while keys are usable, unless the issuer's entry sets another interval."""
PAUSE_SECONDS = 10.0
"""Shortest time between two fetches, whatever triggers them."""
KEPT_SECONDS = 3600.0
"""How long fetched keys stay valid while their URL does not answer."""

_READERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "RSA": RSAAlgorithm.from_jwk,
    "EC": ECAlgorithm.from_jwk,
    "OKP": OKPAlgorithm.from_jwk,
}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """Public key with its algorithms; the header of a token can choose only among these algorithms."""

    kid: str | None
    algorithms: tuple[str, ...]
    key: Any


Keys = tuple[SigningKey, ...]


class KeySource(Protocol):
    """Source of an issuer's keys."""

    @property
    def current(self) -> Keys | None:
        """Current keys, the same object until they change; None if no keys are usable."""

    def refresh(self) -> None:
        """Check whether the keys have changed; never block."""


def parse_keys(content: bytes) -> Keys:
    """Parse a JSON Web Key Set, or a public key in PEM; raise ValueError."""
    try:
        keys = _of_key_set(content) if content.lstrip().startswith(b"{") else _of_pem(content)
    except (UnsupportedAlgorithm, RecursionError) as error:
        raise ValueError(f"not a key set: {error}") from None
    if not keys:
        raise ValueError("no key can be used: expected RSA of 2048 to 8192 bits, EC on P-256, or Ed25519")
    return keys


def _of_pem(content: bytes) -> Keys:
    if b"BEGIN PUBLIC KEY" not in content:
        raise ValueError("neither a JSON Web Key Set nor a public key in PEM")
    key = load_pem_public_key(content)
    return (SigningKey(None, algorithms, key),) if (algorithms := _algorithms(key)) else ()


def _of_key_set(content: bytes) -> Keys:
    entries = json.loads(content).get("keys")
    if not isinstance(entries, list) or len(entries) > _MAX_KEYS:
        raise ValueError(f"not a key set: 'keys' has to be a list of at most {_MAX_KEYS}")
    return tuple(key for entry in entries if (key := _of_entry(entry)) is not None)


def _of_entry(entry: Any) -> SigningKey | None:
    """Return a key of the set; return None for a key of another use or an unsupported kind, such as a shared secret."""
    if not isinstance(entry, dict):
        raise ValueError("not a key set: a key has to be an object")
    reader = _READERS.get(str(entry.get("kty")))
    if reader is None or entry.get("use", "sig") != "sig":
        return None
    if "d" in entry:
        raise ValueError("the key set holds a private key")
    try:
        key = reader(entry)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms = tuple(name for name in _algorithms(key) if entry.get("alg", name) == name)
    kid = entry.get("kid")
    return SigningKey(kid if isinstance(kid, str) else None, algorithms, key) if algorithms else None


def _algorithms(key: Any) -> tuple[str, ...]:
    if isinstance(key, RSAPublicKey):
        return ("RS256", "PS256") if _MIN_RSA_BITS <= key.key_size <= _MAX_RSA_BITS else ()
    if isinstance(key, EllipticCurvePublicKey):
        return ("ES256",) if isinstance(key.curve, SECP256R1) else ()
    return ("EdDSA",) if isinstance(key, Ed25519PublicKey) else ()


@dataclass(frozen=True, slots=True)
class _Fetched:
    keys: Keys
    digest: bytes
    seconds: float


class UrlKeys:
    """Keys published at a URL; each fetch runs on its own thread."""

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.monotonic,
        fetch: Callable[[str], bytes] | None = None,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        """Create the source; the first `refresh` starts a fetch.

        Args:
            url: URL of the keys.
            clock: Monotonic clock, in seconds.
            fetch: Function that returns the content of a URL, or raises OSError or ValueError; None for `fetch_keys`.
            refresh_seconds: Interval of fetches while keys are usable.
        """
        self._url = url
        self._refresh_seconds = refresh_seconds
        self._clock = clock
        self._fetch = fetch or fetch_keys
        self._good: _Fetched | None = None
        self._running: Future[None] | None = None
        self._begun_seconds: float | None = None
        self._problem = ""
        self.changes = 0
        """Number of fetches that returned changed keys."""

    @property
    def current(self) -> Keys | None:
        """Last good keys; None before the first fetch, or an hour after the last successful fetch."""
        good = self._good
        return good.keys if good is not None and self._clock() - good.seconds < KEPT_SECONDS else None

    def refresh(self) -> None:
        """Fetch the keys again if a fetch is due."""
        good = self._good
        if good is None or self._problem or self._clock() - good.seconds >= self._refresh_seconds:
            self.look_again()

    def look_again(self) -> Future[None] | None:
        """Fetch the keys now; return None if the last fetch began less than PAUSE_SECONDS ago.

        If a fetch is running, return the future of that fetch. A future ends without an error, even if its fetch fails.
        """
        elapsed_seconds = None if self._begun_seconds is None else self._clock() - self._begun_seconds
        if self._running is not None and (elapsed_seconds or 0.0) < _GIVEN_UP_SECONDS:
            return self._running
        if elapsed_seconds is not None and elapsed_seconds < PAUSE_SECONDS:
            return None
        self._begun_seconds = self._clock()
        self._running = running = Future[None]()
        # Use a daemon thread, so that a URL that does not answer cannot delay the end of the service.
        threading.Thread(target=self._run, args=(running,), name="issuer-keys", daemon=True).start()
        return running

    def _run(self, running: "Future[None]") -> None:
        try:
            content = self._fetch(self._url)
            self._take(running, parse_keys(content), hashlib.sha256(content).digest())
        except (OSError, ValueError, http.client.HTTPException) as error:
            if self._running is running:
                self._report(str(error) or type(error).__name__)
        finally:
            if self._running is running:
                self._running = None
            running.set_result(None)

    def _take(self, running: "Future[None]", keys: Keys, digest: bytes) -> None:
        if self._running is not running:
            return
        good = self._good
        same = good is not None and good.digest == digest
        self.changes += not same
        self._good = _Fetched(good.keys if good is not None and same else keys, digest, self._clock())
        if self._problem or not same:
            _log.info("keys of an issuer were fetched", url=self._url, keys=len(keys))
        self._problem = ""

    def _report(self, problem: str) -> None:
        if not self._problem:
            _log.error(
                "keys of an issuer cannot be fetched: the last good ones stay valid for an hour",
                url=self._url,
                reason=problem,
            )
        self._problem = problem


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Refuse redirects: only the configured URL was checked."""


def fetch_keys(url: str, *, ca_file: Path | None = None, token_file: Path | None = None) -> bytes:
    """Return the content of a URL, in bounded size and time; raise OSError, HTTPException or ValueError.

    Args:
        url: URL to fetch; the certificate of an https server is verified.
        ca_file: Authorities that may have signed the certificate; None for the authorities that this machine trusts.
            Every call reads this file and `token_file` again.
        token_file: File with a bearer token for the URL; None to send none.
    """
    # Plain HTTP is allowed to this machine only, so bypass any proxy.
    direct = [urllib.request.ProxyHandler({})] if url.startswith("http://") else []
    context = None if ca_file is None else ssl.create_default_context(cafile=ca_file)
    headers = [] if token_file is None else [("Authorization", f"Bearer {_token_in(token_file)}")]
    content, problem = b"", f"incomplete after {FETCH_SECONDS} s"
    with contextlib.closing(_Deadline(FETCH_SECONDS)) as deadline:
        opener = urllib.request.build_opener(_NoRedirects, *deadline.handlers(context), *direct)
        opener.addheaders.extend(headers)
        try:
            with opener.open(url, timeout=FETCH_SECONDS) as reply:
                while piece := reply.read1(_READ_BYTES):
                    content += piece
                    if len(content) > _MAX_REPLY_BYTES:
                        raise ValueError(f"more than {_MAX_REPLY_BYTES} bytes")
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            if deadline.has_passed:
                raise TimeoutError(problem) from error
            raise
    if deadline.has_passed:
        raise TimeoutError(problem)
    return content


def _token_in(path: Path) -> str:
    """Return the token in a file; raise OSError or ValueError."""
    token = path.read_text(encoding="ascii").strip()
    if not token or not token.isprintable() or " " in token:
        raise ValueError(f"{path} does not hold a token")
    return token


class _Deadline:
    """Time limit for a whole fetch, enforced by closing connections. A socket timeout would restart with each byte."""

    def __init__(self, seconds: float) -> None:
        self.has_passed = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._hang_up)
        self._timer.daemon = True
        self._timer.start()

    def handlers(self, context: ssl.SSLContext | None) -> list[urllib.request.BaseHandler]:
        """Return urllib handlers whose connections the deadline can close.

        Without a context, https trusts the authorities that this machine trusts.
        """
        watch = self._watch

        class PlainConnection(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                watch(self.sock)

        class SecureConnection(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                watch(self.sock)

        class Plain(urllib.request.HTTPHandler):
            def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(PlainConnection, req)

        class Secure(urllib.request.HTTPSHandler):
            def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(SecureConnection, req, context=context)

        return [Plain(), Secure()]

    def close(self) -> None:
        """Cancel the deadline and close all connections."""
        self._timer.cancel()
        for sock in self._sockets:
            sock.close()

    def _watch(self, sock: socket.socket) -> None:
        self._sockets.append(sock)
        if self.has_passed:
            self._hang_up()

    def _hang_up(self) -> None:
        self.has_passed = True
        for sock in self._sockets:
            # Shut down the TCP socket below TLS, because SSLSocket.shutdown also drops the TLS state that the reading
            # thread still uses.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
