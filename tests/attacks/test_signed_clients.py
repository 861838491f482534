# SPDX-License-Identifier: Apache-2.0
"""Clients with a token but no key run no code in a pool that requires signatures, and cost others nothing."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StringType
from served_pool import Server
from session_commands import scalar_arrow
from signing import Driver, write_signers

from tests.attacks import signed_clients
from tests.attacks.outsiders import ClientAttempt
from tests.attacks.signed_clients import Keyless, ended, leaves_a_mark, signed
from tests.attacks.until_harmed import UntilHarmed
from tests.support.certificates import Authority


class SignedPool:
    """Pool that trusts one driver, and a directory in which functions may leave marks."""

    def __init__(self, directory: Path) -> None:
        self._marks, self._audit = directory / "marks", directory / "audit"
        self._marks.mkdir()
        self._token, self._driver = secrets.token_hex(16), Driver()
        authority = Authority(directory / "certificates")
        identity = authority.identity("127.0.0.1")
        self._certificate = authority.certificate.read_bytes()
        (directory / "tokens").write_text(self._token + "\n")
        write_signers(directory / "signers", [self._driver])
        self._server = Server(
            directory,
            "--workers=2",
            "--session-functions=signed",
            f"--signers-file={directory}/signers",
            f"--runtime-directory={directory}/runtime",
            f"--writable-paths={self._marks}",
            f"--token-file={directory}/tokens",
            f"--tls-certificate-file={identity.certificate}",
            f"--tls-key-file={identity.key}",
            f"--audit-file={self._audit}",
        )

    def __enter__(self) -> SignedPool:
        # Check that the driver's own function leaves a mark; otherwise a missing mark would prove nothing.
        self._run_of_driver()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.process.terminate()
        self._server.process.wait()

    def outsider(self) -> Keyless:
        """Return a client that has everything except the driver's key."""
        address = self._server.ready()["listen"]
        return Keyless(address, self._certificate, self._token, self._marks, self._driver)

    def _run_of_driver(self) -> None:
        with self.outsider() as client:
            made = scalar_arrow(leaves_a_mark(self._marks), StringType())
            assert ended(client, signed(self._driver, made)) == "OK"
        (mark,) = self._marks.iterdir()
        mark.unlink()

    def check_unharmed(self) -> None:
        """Check that no code except the driver's has run, and that the driver's code still runs."""
        assert not list(self._marks.iterdir())
        # Skip the last line, because the pool may still be writing it.
        whole, _, _ = self._audit.read_bytes().rpartition(b"\n")
        opened = [record for record in map(json.loads, whole.splitlines()) if record["event"] == "opened"]
        assert {record["signer"] for record in opened} == {self._driver.name}
        self._run_of_driver()


Pools = UntilHarmed[SignedPool]


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    with contextlib.closing(UntilHarmed(SignedPool)) as pools:
        yield pools


def _name(attempt: ClientAttempt) -> str:
    return attempt.name


@pytest.mark.parametrize("attempt", [*signed_clients.ATTEMPTS], ids=_name)
def test_who_has_no_key_runs_no_code(pools: Pools, attempt: ClientAttempt) -> None:
    with pools.unharmed() as pool, pool.outsider() as keyless:
        told = set(attempt.run(keyless) or ())
    assert told <= attempt.told, told
