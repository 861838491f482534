# SPDX-License-Identifier: Apache-2.0
"""Access to metrics and status: readers, networks and credentials."""

import base64
import socket
from pathlib import Path

import psutil
import pytest

from updraft.service.observers import Observers, is_own_address

OWN, ANOTHER = "127.0.0.1", "192.0.2.7"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("right\n")
    return path


def basic(credentials: str) -> str:
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1", "0.0.0.0"])
def test_addresses_of_this_machine(address: str) -> None:
    assert is_own_address(address)


@pytest.mark.parametrize("address", ["192.0.2.7", "198.51.100.1", "2001:db8::1", "::ffff:192.0.2.7"])
def test_addresses_of_others(address: str) -> None:
    assert not is_own_address(address)


def test_every_address_of_this_machine_is_its_own() -> None:
    interfaces = psutil.net_if_addrs().values()
    addresses = [found.address for each in interfaces for found in each if found.family == socket.AF_INET]
    assert addresses
    assert [address for address in addresses if not is_own_address(address)] == []


def test_without_files_everybody_may_read() -> None:
    assert Observers(None, None).refusal(OWN, "") == ""
    assert Observers(None, None).refusal(ANOTHER, "") == ""


def test_with_a_file_of_tokens_everybody_needs_one(tokens: Path) -> None:
    observers = Observers(tokens, None)
    for peer in (OWN, ANOTHER):
        assert observers.refusal(peer, "Bearer right") == ""
        assert "needs a token" in observers.refusal(peer, "")
        assert "not one that this service knows" in observers.refusal(peer, "Bearer wrong")


def test_neighbours_alone_need_that_of_neighbours(tokens: Path) -> None:
    observers = Observers(None, tokens)
    assert observers.refusal(ANOTHER, "") == ""
    assert "needs a token" in observers.refusal(OWN, "")
    assert observers.refusal(OWN, "Bearer right") == ""


def test_tokens_for_everybody_count_for_neighbours_too(tokens: Path, tmp_path: Path) -> None:
    neighbours = tmp_path / "neighbours"
    neighbours.write_text("neighbour\n")
    assert Observers(tokens, neighbours).refusal(OWN, "Bearer neighbour") != ""
    assert Observers(tokens, neighbours).refusal(OWN, "Bearer right") == ""


def test_a_browser_sends_the_token_as_a_password(tokens: Path) -> None:
    observers = Observers(tokens, None)
    assert observers.refusal(OWN, basic("anybody:right")) == ""
    assert observers.refusal(OWN, basic(":right")) == ""
    for header in (basic("right"), basic("right:"), basic("a:wrong"), "Basic %%%", "Basic /w==", "Basic "):
        assert observers.refusal(OWN, header) != "", header


def test_a_token_that_was_withdrawn_is_refused(tokens: Path) -> None:
    observers = Observers(tokens, None)
    tokens.write_text("another\n")
    assert observers.refusal(OWN, "Bearer right") != ""
