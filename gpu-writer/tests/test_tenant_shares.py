# SPDX-License-Identifier: Apache-2.0
"""Per-tenant caps of a writer, and each tenant's share of the open files."""

import hashlib
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from quota_arrivals import Arrivals
from running_writer import SCHEMA, running_writer

from updraft.errors import QuotaError
from updraft.service.tenants import Caps, Claims, TenantCaps
from updraft_writer.open_files import OpenFiles
from updraft_writer.quota import Quota, QuotaLimits

MIB = 1 << 20


def of_a(**caps: int) -> Caps:
    return Caps(lambda tenant: TenantCaps(**caps) if tenant == "a" else TenantCaps())


async def test_a_tenant_at_its_cap_waits_for_itself_alone() -> None:
    arrivals = Arrivals(100, caps=of_a(max_quota_bytes=50))
    told: list[tuple[str, int]] = []
    arrivals.quota.on_cap = lambda tenant, missing_bytes: told.append((tenant, missing_bytes))
    await arrivals.come("a1", 40, "a")
    await arrivals.come("a2", 20, "a")
    assert told[-1] == ("a", 10)
    arrivals.now = 60.0
    # However long it waits, it does not block others.
    await arrivals.come("b1", 60, "b")
    assert arrivals.admitted == ["a1", "b1"]
    await arrivals.leave("a1")
    assert arrivals.admitted == ["a1", "b1", "a2"]


async def test_a_tenant_whose_open_files_take_all_it_may_have_goes_on_batch_by_batch() -> None:
    arrivals = Arrivals(100, caps=of_a(max_quota_bytes=50))
    arrivals.quota.charge("a").resize(50)
    await arrivals.come("a1", 20, "a")
    await arrivals.come("a2", 20, "a")
    assert arrivals.admitted == ["a1"]
    await arrivals.leave("a1")
    assert arrivals.admitted == ["a1", "a2"]


async def test_who_gives_up_at_its_cap_is_told_of_it() -> None:
    caps = of_a(max_quota_bytes=50)
    arrivals = Arrivals(100, timeout_seconds=0.01, caps=caps)
    await arrivals.come("a1", 40, "a")
    await arrivals.come("a2", 20, "a")
    with pytest.raises(QuotaError, match=r"'a' has 40 bytes of the quota and wants 20 more, its cap is 50"):
        await arrivals.tasks["a2"]
    assert caps.refusals["max_quota_bytes"] == 1


class Clock:
    def __init__(self) -> None:
        self.now = 0.0


async def _files(clock: Clock, caps: Caps | None = None) -> OpenFiles:
    files = OpenFiles(Quota(QuotaLimits(quota_bytes=64 * MIB), caps=caps), max_open_files=8)
    files._claims = Claims(lambda: clock.now)
    return files


async def test_who_found_no_place_is_next_although_others_ask_more() -> None:
    clock = Clock()
    files = await _files(clock)
    with ExitStack() as stack:
        one = stack.enter_context(ExitStack())
        one.enter_context(files.place("greedy"))
        for _ in range(7):
            stack.enter_context(files.place("greedy"))
        with pytest.raises(QuotaError, match="8 files are open"):
            files.place("modest").__enter__()
        one.close()
        with pytest.raises(QuotaError, match="'greedy' has 7 of 7 open files, and other tenants wait"):
            files.place("greedy").__enter__()
        with files.place("modest"):
            pass
        clock.now = 60.0
        stack.enter_context(files.place("greedy"))


async def test_a_tenant_opens_no_more_files_than_its_cap() -> None:
    files = await _files(Clock(), of_a(max_files=2))
    with ExitStack() as stack:
        for tenant in "aab":
            stack.enter_context(files.place(tenant))
        with pytest.raises(QuotaError, match=r"'a' has 2 open files and wants 1 more, its cap is 2.*raise max_files"):
            files.place("a").__enter__()
    with files.place("a"):
        pass


def identities_of(directory: Path, caps: str) -> Path:
    """Return a file of the tenants a and b, whose token is their name; tenant a has the caps."""
    path = directory / "identities.toml"
    path.write_text(
        "".join(
            f'[[identity]]\nname = "{name}"\ntenant = "{name}"\nscopes = ["write"]\n'
            f'token_sha256 = ["{hashlib.sha256(name.encode()).hexdigest()}"]\n'
            for name in "ab"
        )
        + f'[[tenant]]\nname = "a"\n{caps}\n'
    )
    (directory / "root").mkdir()
    return path


def test_files_of_a_tenant_at_its_cap_flush_what_they_hold(tmp_path: Path) -> None:
    """Their row groups would be larger than everything the tenant may hold."""
    identities = identities_of(tmp_path, f"max_quota_bytes = {8 * MIB}")
    values = pa.record_batch({"n": pa.array(range(100_000), pa.int64())})
    large = {"quota_bytes": 512 * MIB, "row_group_bytes": 64 * MIB}
    constants = {"quota.ADMISSION_TIMEOUT_SECONDS": 20.0}
    with running_writer(tmp_path / "root", constants=constants, identities_file=identities, **large) as writer:
        client = writer.client(token="a")
        with client, client.create(str(tmp_path / "root/f"), SCHEMA) as file:
            for _ in range(40):
                file.write(values)
    found = pq.ParquetFile(tmp_path / "root/f").metadata
    assert found.num_rows == 40 * values.num_rows
    assert found.num_row_groups > 1


def test_a_writer_has_the_caps_of_its_file_and_counts_what_they_refuse(tmp_path: Path) -> None:
    identities = identities_of(tmp_path, "max_files = 1")
    with running_writer(tmp_path / "root", identities_file=identities) as writer:
        a, b = writer.client(token="a"), writer.client(token="b")
        rows = pa.record_batch({"n": pa.array(range(10), pa.int64())})
        with a, b, a.create(str(tmp_path / "root/1"), SCHEMA) as file:
            file.write(rows)
            with b.create(str(tmp_path / "root/2"), SCHEMA) as other:
                other.write(rows)
            with (
                pytest.raises(QuotaError, match="'a' has 1 open files"),
                a.create(str(tmp_path / "root/3"), SCHEMA) as x,
            ):
                x.write(rows)
        counted = writer.writer.metrics.registry.get_sample_value
        assert counted("updraft_writer_tenant_cap_refusals_total", {"cap": "max_files"}) == 1
