# SPDX-License-Identifier: Apache-2.0
"""Authorization of identities at a writer: only with the right scope, below their own roots, for their own tenant."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import flight
from running_writer import RunningWriter, command, running_writer

from updraft.client.writer import WriterClient
from updraft.errors import PermissionDeniedError, UpdraftError, WriteRefusedError

ROWS = pa.record_batch({"n": pa.array(range(10))})


@pytest.fixture
def identities(tmp_path: Path) -> Path:
    """Return a file of identities whose token is their name; the root of `a` is below the writer's."""
    for name in ("a", "b"):
        (tmp_path / "root" / name).mkdir(parents=True)
    roots = {"a": f'roots = ["{tmp_path}/root/a"]', "outside": f'roots = ["{tmp_path}"]', "reader": "", "all": ""}
    scopes = {"reader": '["call", "session", "admin"]'}
    path = tmp_path / "identities.toml"
    path.write_text(
        "".join(
            f'[[identity]]\nname = "{name}"\ntenant = "a"\nscopes = {scopes.get(name, ["write"])}\n{own}\n'
            f'token_sha256 = ["{hashlib.sha256(name.encode()).hexdigest()}"]\n'
            for name, own in roots.items()
        )
    )
    return path


def write(client: WriterClient, path: Path) -> None:
    with client, client.create(str(path), ROWS.schema) as file:
        file.write(ROWS)


@pytest.mark.parametrize(
    ("name", "place", "refusal"),
    [
        ("all", "root/a/f", None),
        ("all", "root/b/f", None),
        ("all", "f", WriteRefusedError),
        ("a", "root/a/f", None),
        ("a", "root/a/deep/f", None),
        ("a", "root/b/f", WriteRefusedError),
        ("a", "root/f", WriteRefusedError),
        ("a", "root/a/link/f", WriteRefusedError),
        # The root of an identity allows no path outside the writer's roots.
        ("outside", "root/a/f", WriteRefusedError),
        ("outside", "f", WriteRefusedError),
        ("reader", "root/a/f", PermissionDeniedError),
    ],
)
def test_an_identity_writes_where_it_may(
    tmp_path: Path, identities: Path, name: str, place: str, refusal: type[UpdraftError] | None
) -> None:
    (tmp_path / "root/a/link").symlink_to(tmp_path / "root/b")
    with running_writer(tmp_path / "root", identities_file=identities) as writer:
        if refusal is None:
            write(writer.client(token=name), tmp_path / place)
            assert pq.read_table(tmp_path / place).num_rows == ROWS.num_rows
            return
        with pytest.raises(refusal):
            write(writer.client(token=name), tmp_path / place)
        assert not (tmp_path / place).exists()


@pytest.mark.parametrize(
    ("name", "place", "refusal"),
    [
        ("all", "root/b/f", ""),
        ("a", "root/a/f", ""),
        ("a", "root/b/f", "outside the roots"),
        ("outside", "f", "outside the roots"),
        ("reader", "root/a/f", "it needs the scope write, but has admin, call, session"),
        ("reader", "f", "it needs the scope write"),
    ],
)
def test_an_identity_asks_where_it_may_write(
    tmp_path: Path, identities: Path, name: str, place: str, refusal: str
) -> None:
    with running_writer(tmp_path / "root", identities_file=identities) as writer:
        if not refusal:
            assert check(writer, tmp_path / place, token=name) == [b""]
            return
        with pytest.raises(flight.FlightUnauthorizedError, match=refusal):
            check(writer, tmp_path / place, token=name)


def check(writer: RunningWriter, path: Path, *, token: str) -> list[bytes]:
    """Ask whether the writer would open the file."""
    asked = flight.Action("updraft.check_write", command(path).SerializeToString())
    with flight.connect(f"grpc://{writer.address}") as client:
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=60)
        return [result.body.to_pybytes() for result in client.do_action(asked, options)]


def test_an_identity_writes_for_its_own_tenant(tmp_path: Path, identities: Path) -> None:
    with running_writer(tmp_path / "root", identities_file=identities) as writer:
        write(writer.client(token="all", tenant="a"), tmp_path / "root/f")
        with pytest.raises(PermissionDeniedError, match="cannot act for 'b'"):
            write(writer.client(token="all", tenant="b"), tmp_path / "root/g")
