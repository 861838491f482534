# SPDX-License-Identifier: Apache-2.0
"""Keys of an issuer: valid key sets, and URLs that change their keys, hang, lie or are unreachable."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from issuing import Key, entry, key_set
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from updraft.errors import UnauthenticatedError
from updraft.service import issued_tokens, issuer_keys
from updraft.service.authenticator import Authenticator
from updraft.service.issued_tokens import IssuedTokens
from updraft.service.issuer_keys import KEPT_SECONDS, PAUSE_SECONDS, REFRESH_SECONDS, UrlKeys, parse_keys
from updraft.service.security import SecurityError

KEY, OTHER = Key("one"), Key("two")
_HANG_SECONDS = 60


def _only_source(authenticator: Authenticator) -> UrlKeys:
    assert authenticator._issued is not None
    (source,) = authenticator._issued._sources.values()
    assert isinstance(source, UrlKeys)
    return source


def _await_fetch(keys: UrlKeys) -> None:
    """Wait until no fetch runs: its keys are usable shortly before it ends, and no other starts before that."""
    if (running := keys._running) is not None:
        running.result(_HANG_SECONDS)


class Published:
    """Content of a URL, the clock, and the number of fetches."""

    def __init__(self, content: bytes | Exception) -> None:
        self.content = content
        self.now = 1000.0
        self.fetches = 0
        self.keys = UrlKeys("https://example.org/keys", lambda: self.now, self._fetch)

    def _fetch(self, _url: str) -> bytes:
        self.fetches += 1
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    def look(self) -> list[str | None]:
        """Refresh, wait, and return the ids of the known keys."""
        self.keys.refresh()
        _await_fetch(self.keys)
        return [key.kid for key in self.keys.current or ()]


def test_keys_are_fetched_again_when_it_is_time_and_not_before() -> None:
    published = Published(key_set(KEY))
    assert published.look() == ["one"]
    published.content = key_set(OTHER)
    published.now += REFRESH_SECONDS - 1
    assert published.look() == ["one"]
    published.now += 1
    assert published.look() == ["two"]
    assert published.fetches == 2


def test_keys_that_are_the_same_stay_the_same_object() -> None:
    published = Published(key_set(KEY))
    published.look()
    before = published.keys.current
    published.now += REFRESH_SECONDS
    published.look()
    assert published.fetches == 2
    assert published.keys.current is before


@pytest.mark.parametrize("failure", [OSError("away"), b"<html>", b"{}", b'{"keys": []}', b"{" * 100_000])
def test_the_last_good_keys_serve_for_an_hour(failure: bytes | Exception) -> None:
    published = Published(key_set(KEY))
    published.look()
    published.content = failure
    published.now += KEPT_SECONDS - 1
    assert published.look() == ["one"]
    published.now += 1
    assert published.keys.current is None
    assert published.look() == []
    published.content = key_set(OTHER)
    published.now += PAUSE_SECONDS
    assert published.look() == ["two"]


def test_an_address_that_is_away_is_asked_again_after_a_pause() -> None:
    published = Published(OSError("away"))
    for _ in range(3):
        assert published.look() == []
    assert published.fetches == 1
    published.now += PAUSE_SECONDS
    published.look()
    assert published.fetches == 2


def test_unknown_keys_do_not_make_it_fetch_more_often_than_after_a_pause() -> None:
    published = Published(key_set(KEY))
    published.look()
    assert [published.keys.look_again() for _ in range(100)] == [None] * 100
    published.now += PAUSE_SECONDS
    running = published.keys.look_again()
    assert running is not None
    running.result(_HANG_SECONDS)
    assert published.fetches == 2


def test_those_who_ask_meanwhile_wait_for_the_same_answer_and_one_that_never_comes_is_given_up() -> None:
    published, answer = Published(key_set(KEY)), threading.Event()
    fetch = published.keys._fetch

    def hangs(url: str) -> bytes:
        published.keys._fetch = fetch
        answer.wait(_HANG_SECONDS)
        return key_set(OTHER)

    published.keys._fetch = hangs
    first = published.keys.look_again()
    assert first is not None
    assert published.keys.look_again() is first
    published.now += issuer_keys._GIVEN_UP_SECONDS
    assert published.look() == ["one"]
    answer.set()
    first.result(_HANG_SECONDS)
    # The late answer was discarded.
    assert [key.kid for key in published.keys.current or ()] == ["one"]


def _entry(key: Any, **others: Any) -> dict[str, Any]:
    converter: Any = RSAAlgorithm if isinstance(key, rsa.RSAPublicKey) else ECAlgorithm
    return {**converter.to_jwk(key, as_dict=True), **others}


UNUSED: dict[str, dict[str, Any]] = {
    "a shared secret": {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "s"},
    "a key for encryption": {**KEY.entry, "use": "enc"},
    "a short RSA key": _entry(rsa.generate_private_key(65537, 1024).public_key()),
    "an RSA key that takes long to use": _entry(rsa.RSAPublicNumbers(65537, (1 << 16384) - 1).public_key()),
    "another curve": _entry(ec.generate_private_key(ec.SECP384R1()).public_key()),
    "another algorithm": {**KEY.entry, "alg": "RS256"},
    "no algorithm": {**KEY.entry, "alg": "none"},
    "a broken key": {"kty": "EC", "crv": "P-256", "x": "?", "y": 1},
    "nothing": {},
}


@pytest.mark.parametrize("unused", UNUSED)
def test_keys_of_other_kinds_verify_nothing(unused: str) -> None:
    entries = [UNUSED[unused], OTHER.entry]
    assert [key.kid for key in parse_keys(json.dumps({"keys": entries}).encode())] == ["two"]
    with pytest.raises(ValueError, match="no key can be used"):
        parse_keys(json.dumps({"keys": [UNUSED[unused]]}).encode())


def test_a_private_key_or_too_many_keys_are_no_key_set() -> None:
    private = {**KEY.entry, "d": "AA"}
    with pytest.raises(ValueError, match="holds a private key"):
        parse_keys(json.dumps({"keys": [private]}).encode())
    with pytest.raises(ValueError, match="at most 64"):
        parse_keys(json.dumps({"keys": [KEY.entry] * 65}).encode())


def test_a_pem_file_holds_a_public_key_that_is_long_enough() -> None:
    assert parse_keys(KEY.pem)[0].algorithms == ("ES256",)
    short = (
        rsa.generate_private_key(65537, 1024).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for content, says in ((short, "no key can be used"), (b"-----BEGIN CERTIFICATE-----", "neither")):
        with pytest.raises(ValueError, match=says):
            parse_keys(content)


class _Handler(BaseHTTPRequestHandler):
    content = b""
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/keys" else 200)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def _site(content: bytes, status: int = 200) -> Iterator[tuple[type[_Handler], str]]:
    handler = type("Handler", (_Handler,), {"content": content, "status": status})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield handler, f"http://127.0.0.1:{server.server_port}/keys"
        finally:
            server.shutdown()
            thread.join()


def test_what_a_url_has_is_bounded_and_leads_nowhere() -> None:
    with _site(b"x") as (_, url):
        assert issuer_keys.fetch_keys(url) == b"x"
    with _site(bytes(issuer_keys._MAX_REPLY_BYTES + 1)) as (_, url), pytest.raises(ValueError, match="more than"):
        issuer_keys.fetch_keys(url)
    for status in (302, 404):
        with _site(key_set(KEY), status) as (_, url), pytest.raises(OSError, match=str(status)):
            issuer_keys.fetch_keys(url)


_SLOW_REPLIES = {
    "a status that never ends": (b"", b"H"),
    "headers that never end": (b"HTTP/1.1 200 OK\r\n", b"X"),
    "a body that never ends": (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
    "replies before the reply": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.mark.parametrize("reply", _SLOW_REPLIES)
def test_who_answers_byte_after_byte_is_hung_up_on(reply: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "FETCH_SECONDS", 0.5)
    first, again = _SLOW_REPLIES[reply]
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(first)
                while True:
                    connection.sendall(again)
                    # Each byte comes within any socket's timeout.
                    time.sleep(0.01)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TimeoutError, match="incomplete after"):
            issuer_keys.fetch_keys(f"http://127.0.0.1:{listening.getsockname()[1]}/keys")
        # The thread ends because the client has closed the connection.
        thread.join(_HANG_SECONDS)
        assert not thread.is_alive()


async def test_a_call_waits_for_keys_that_were_not_fetched_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _site(key_set(KEY)) as (site, url):
        path = tmp_path / "identities.toml"
        path.write_text(entry(f'keys_url = "{url}"'))
        authenticator = Authenticator(None, path)
        # The service gets all these calls before the first answer with keys.
        calls = (authenticator.identify(f"Bearer {KEY.token(sub=str(number))}") for number in range(8))
        assert {identity.tenant for identity in await asyncio.gather(*calls)} == {"a"}
        _await_fetch(_only_source(authenticator))
        monkeypatch.setattr(issuer_keys, "PAUSE_SECONDS", 0.0)
        site.content = key_set(OTHER)
        assert (await authenticator.identify(f"Bearer {OTHER.token()}")).tenant == "a"
        with pytest.raises(UnauthenticatedError, match="not one that this service knows"):
            await authenticator.identify(f"Bearer {KEY.token()}")


async def test_a_key_that_is_withdrawn_counts_for_half_a_minute_unless_its_issuer_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert REFRESH_SECONDS == 30
    monkeypatch.setattr(issuer_keys, "PAUSE_SECONDS", 0.0)
    with _site(key_set(KEY)) as (site, url):
        path = tmp_path / "identities.toml"
        path.write_text(entry(f'keys_url = "{url}"', keys_refresh_seconds=10))
        authenticator = Authenticator(None, path)
        assert (await authenticator.identify(f"Bearer {KEY.token()}")).tenant == "a"
        source = _only_source(authenticator)
        _await_fetch(source)
        site.content = key_set(OTHER)
        fetched_seconds = time.monotonic()
        source._clock = lambda: fetched_seconds + 11
        authenticator.refresh()
        _await_fetch(source)
        with pytest.raises(UnauthenticatedError, match="not one that this service knows"):
            await authenticator.identify(f"Bearer {KEY.token()}")


@pytest.mark.parametrize("seconds", [9, 1801])
def test_keys_are_fetched_neither_all_the_time_nor_once_an_hour(tmp_path: Path, seconds: int) -> None:
    path = tmp_path / "identities.toml"
    path.write_text(entry('keys_url = "https://example.org/keys"', keys_refresh_seconds=seconds))
    with pytest.raises(SecurityError, match="keys_refresh_seconds"):
        Authenticator(None, path)


async def test_keys_that_come_between_two_looks_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, ask = threading.Event(), IssuedTokens.awaited_keys

    def fetch(_: str, **_files: object) -> bytes:
        assert looked.wait(60)
        return key_set(KEY)

    def after_they_came(tokens: IssuedTokens, token: str) -> object:
        looked.set()
        fetched = ask(tokens, token)
        assert fetched is not None
        fetched.result(60)
        return ask(tokens, token)

    monkeypatch.setattr(issued_tokens, "fetch_keys", fetch)
    monkeypatch.setattr(IssuedTokens, "awaited_keys", after_they_came)
    path = tmp_path / "identities.toml"
    path.write_text(entry('keys_url = "http://127.0.0.1:9/keys"'))
    assert (await Authenticator(None, path).identify(f"Bearer {KEY.token()}")).tenant == "a"


async def test_a_call_is_of_nobody_known_while_no_keys_can_be_had(tmp_path: Path) -> None:
    with _site(b"", 503) as (_, url):
        path = tmp_path / "identities.toml"
        path.write_text(entry(f'keys_url = "{url}"'))
        with pytest.raises(UnauthenticatedError, match="not one that this service knows"):
            await Authenticator(None, path).identify(f"Bearer {KEY.token()}")
