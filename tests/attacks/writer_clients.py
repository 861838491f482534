# SPDX-License-Identifier: Apache-2.0
"""Attempts of a writer's clients: held quota, unbounded files and options, paths that lead elsewhere."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from tests.attacks.client_connections import (
    floods_with_frames_of_nothing,
    floods_with_resets,
    leaves_handshakes_half_done,
)
from tests.attacks.client_messages import hostile_arrow
from tests.attacks.outsiders import ClientAttempts, Conversation, Outsider
from tests.support.flight import _MESSAGES, FlightData, first_message
from updraft.protocol import PROTOCOL_VERSION
from updraft.v1.exchange_pb2 import Finish, KeepAlive
from updraft.v1.write_pb2 import (
    Abort,
    Ask,
    BloomFilter,
    Codec,
    Compression,
    Delivery,
    OrcOptions,
    ParquetOptions,
    Rebase,
    WriteCommand,
    WriteReplyMetadata,
    WriteRequestMetadata,
)

MIB = 1 << 20
ATTEMPTS = ClientAttempts()
ROWS = pa.record_batch({"n": pa.array(range(1000), pa.int64())})
_MOST = (1 << 64) - 1


def _odd(number: int) -> Any:
    """Return a number that the enum does not define."""
    return number


def command(path: Path | str, **changes: Any) -> WriteCommand:
    """Return an honest command with these changes."""
    values = {"protocol_version": PROTOCOL_VERSION, "path": str(path), "delivery": Delivery.DELIVERY_DIRECT}
    if "orc" not in changes:
        values["parquet"] = ParquetOptions()
    return WriteCommand(**{**values, **changes})


def header(schema: pa.Schema) -> bytes:
    """Return Arrow's header of a schema."""
    return bytes(pa.ipc.read_message(schema.serialize()).metadata.to_pybytes())


def said(**event: Any) -> Any:
    """Return a message without data."""
    return FlightData(app_metadata=WriteRequestMetadata(**event).SerializeToString())


def batch(number: int, data: pa.RecordBatch = ROWS) -> Any:
    """Return a batch with its number."""
    message = pa.ipc.read_message(data.serialize())
    return FlightData(
        data_header=message.metadata.to_pybytes(),
        data_body=message.body.to_pybytes() if message.body is not None else b"",
        app_metadata=WriteRequestMetadata(sequence=number).SerializeToString(),
    )


def opened(outsider: Outsider, made: WriteCommand, schema: pa.Schema = ROWS.schema) -> Conversation:
    """Open an exchange with a complete first message."""
    return outsider.exchange(first_message(made, header(schema)))


def credited(exchange: Conversation, body_bytes: int) -> Conversation:
    """Return the exchange when it has credit for a batch, or has ended without credit."""
    exchange.say(said(ask=Ask(body_bytes=body_bytes)))
    with contextlib.suppress(grpc.RpcError):
        while not WriteReplyMetadata.FromString(exchange.hear().app_metadata).credit:
            pass
    return exchange


def wrote(outsider: Outsider, made: WriteCommand, data: pa.RecordBatch = ROWS) -> str:
    """Write a file of one batch; return the status."""
    exchange = credited(opened(outsider, made, data.schema), data.nbytes + 4096)
    return exchange.say(batch(1, data), said(finish=Finish(batches=1, rows=data.num_rows))).half_close().end()


@ATTEMPTS("INVALID_ARGUMENT")
def opens_files_and_says_nothing(outsider: Outsider) -> list[str]:
    silent = [outsider.exchange() for _ in range(50)]
    return [
        exchange.end() for exchange in [*silent, outsider.exchange(first_message(command(outsider.root / "x"), b""))]
    ]


@ATTEMPTS("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
def reserves_the_quota_and_sends_nothing(outsider: Outsider) -> list[str]:
    exchanges = [opened(outsider, command(outsider.root / f"{number}")) for number in range(20)]
    for exchange in exchanges:
        exchange.say(said(ask=Ask(body_bytes=16 * MIB)), said(ask=Ask(body_bytes=16 * MIB)))
    return [exchange.end() for exchange in exchanges]


@ATTEMPTS("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
def reserves_the_quota_and_says_that_it_is_there(outsider: Outsider) -> list[str]:
    exchanges = [credited(opened(outsider, command(outsider.root / f"{n}")), 8 * MIB) for n in range(3)]
    for exchange in exchanges:
        exchange.say(*[said(keep_alive=KeepAlive())] * 100)
    return [exchange.end() for exchange in exchanges]


@ATTEMPTS("CANCELLED")
def gives_up_half_sent_files(outsider: Outsider) -> list[str]:
    exchanges = [credited(opened(outsider, command(outsider.root / f"{number}")), 8192) for number in range(20)]
    return [exchange.say(batch(1)).leave() for exchange in exchanges]


@ATTEMPTS("OK", "INVALID_ARGUMENT")
def gives_up_files_again_and_again(outsider: Outsider) -> list[str]:
    abort = said(abort=Abort(reason='x\n{"event": "forged"}\x1b[2J'))
    exchange = credited(opened(outsider, command(outsider.root / "a")), 8192).say(batch(1), abort, abort, batch(2))
    finish = said(finish=Finish(batches=1, rows=1000))
    after = credited(opened(outsider, command(outsider.root / "b")), 8192).say(batch(1), finish, abort)
    return [exchange.end(), after.end()]


@ATTEMPTS("RESOURCE_EXHAUSTED", "CANCELLED")
def opens_more_files_than_there_may_be(outsider: Outsider) -> list[str]:
    exchanges = [opened(outsider, command(outsider.root / f"{number}")) for number in range(100)]
    statuses = [exchange.end() for exchange in exchanges[-20:]]
    return [*statuses, *(exchange.leave() for exchange in exchanges[:-20])]


@ATTEMPTS("INVALID_ARGUMENT")
def asks_for_credit_without_bound(outsider: Outsider) -> list[str]:
    asks = [[Ask(body_bytes=_MOST)], [Ask(body_bytes=1 << 40)], [Ask(body_bytes=16 * MIB)] * 100]
    return [opened(outsider, command(outsider.root / "x")).say(*(said(ask=ask) for ask in some)).end() for some in asks]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_what_it_has_no_credit_for(outsider: Outsider) -> list[str]:
    large = pa.record_batch({"n": pa.array(range(100_000), pa.int64())})
    path = outsider.root / "x"
    return [
        opened(outsider, command(path)).say(batch(1)).end(),
        credited(opened(outsider, command(path)), 8).say(batch(1, large)).end(),
        credited(opened(outsider, command(path)), 8192).say(batch(2)).end(),
        credited(opened(outsider, command(path)), 8192).say(batch(_MOST)).end(),
        credited(opened(outsider, command(path)), 8192)
        .say(batch(1), said(finish=Finish(batches=9)))
        .half_close()
        .end(),
        credited(opened(outsider, command(path)), 8192).say(batch(1)).half_close().end(),
    ]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_messages_that_swell_when_they_are_read(outsider: Outsider) -> list[str]:
    path = outsider.root / "x"
    report = b"\x1a\x80\x80\x80\x1c" + b"\x1a\xfb\xff\xff\x1b" + b"\x3a\x00" * (29 * MIB)
    swelling = [b"\x12\x00" * (30 * MIB), FlightData(app_metadata=report)]
    statuses = [opened(outsider, command(path)).say(message).end() for message in swelling]
    options = command(path, parquet=ParquetOptions(bloom_filters=[BloomFilter()] * (2 * MIB)))
    statuses.append(opened(outsider, options).end())
    check = _MESSAGES["Action"](type="updraft.check_write", body=options.SerializeToString()).SerializeToString()
    return [*statuses, outsider.call("DoAction", check)]


@ATTEMPTS("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
def sends_large_messages_that_nobody_has_asked_for(outsider: Outsider) -> list[str]:
    large = FlightData(data_body=bytes(60 * MIB)).SerializeToString()
    exchanges = [outsider.exchange(large, over=outsider.connection()) for _ in range(40)]
    return [exchange.end() for exchange in exchanges]


@ATTEMPTS("OK", "INVALID_ARGUMENT")
def asks_for_row_groups_and_pages_without_sense(outsider: Outsider) -> list[str]:
    odd: list[dict[str, Any]] = [
        {"parquet": ParquetOptions(row_group_bytes=_MOST)},
        {"parquet": ParquetOptions(row_group_rows=_MOST)},
        {"parquet": ParquetOptions(page_bytes=_MOST)},
        {"parquet": ParquetOptions(page_bytes=1)},
        {"parquet": ParquetOptions(compression=Compression(codec=_odd(99)))},
        {"parquet": ParquetOptions(compression=Compression(codec=Codec.CODEC_ZSTD, level=-(1 << 31)))},
        {"parquet": ParquetOptions(time_zone="../../etc/passwd", rebase=Rebase.REBASE_LEGACY)},
        {"max_in_flight_bytes": _MOST},
        {"max_in_flight_bytes": 1},
        {"orc": OrcOptions(stripe_bytes=_MOST)},
        {"orc": OrcOptions(row_index_stride=1)},
        {"orc": OrcOptions(bloom_filter_columns=["n"] * 10_000)},
        {"orc": OrcOptions(bloom_filter_columns=["n"], bloom_filter_false_positive_probability=float("nan"))},
        {"pace": 99},
        {"delivery": 99},
        {"protocol_version": 1 << 31},
    ]
    statuses = [wrote(outsider, command(outsider.root / "odd", **changes)) for changes in odd[:-1]]
    assert wrote(outsider, command(outsider.root / "odd", **odd[-1])) == "FAILED_PRECONDITION"
    return statuses


@ATTEMPTS("INVALID_ARGUMENT")
def asks_for_bloom_filters_without_bound(outsider: Outsider) -> list[str]:
    filters = [
        [BloomFilter(column="n", distinct_values=_MOST)],
        [BloomFilter(column="n", distinct_values=1 << 31)],
        [BloomFilter(column="n", false_positive_probability=number) for number in (float("nan"),)],
        [BloomFilter(column="n", false_positive_probability=-1.0)],
        [BloomFilter(column="n", distinct_values=1 << 30)] * 100,
        [BloomFilter(column="not\nthere")],
    ]
    return [
        wrote(outsider, command(outsider.root / "x", parquet=ParquetOptions(bloom_filters=some))) for some in filters
    ]


@ATTEMPTS("PERMISSION_DENIED")
def names_paths_outside(outsider: Outsider) -> list[str]:
    root, outside = outsider.root, outsider.outside
    (root / "link").symlink_to(outside)
    (root / "circle").symlink_to("circle")
    below = (
        "/../outside/x",
        "/a/../../outside/x",
        "/link/x",
        "/circle/x",
        "",
        "-other/x",
        "/nul\0",
        "/" + "a/" * 10_000,
    )
    paths = [f"{root}{path}" for path in below]
    paths += [f"file:{root}/%2e%2e/outside/x", f"file://host{outside}/x", f"s3://bucket{root}/x", f"file:{root}/x?y#z"]
    paths += ["relative", "", "/proc/self/mem", "/" * 100_000, f"{outside}/\n{{forged}}"]
    try:
        opened_them = [opened(outsider, command(path)).end() for path in paths]
        checks = [command(path).SerializeToString() for path in paths]
        actions = [_MESSAGES["Action"](type="updraft.check_write", body=check).SerializeToString() for check in checks]
        return [*opened_them, *(outsider.call("DoAction", action) for action in actions)]
    finally:
        (root / "link").unlink()
        (root / "circle").unlink()


@ATTEMPTS("OK", "ABORTED")
def names_files_as_nobody_does(outsider: Outsider) -> list[str]:
    names = ["\n", "\x1b[2J", "\u202e", "-rf", "x" * 255, "x" * 256, "neighbour.parquet/x", " ", "a" * 3000 + "/b"]
    return [wrote(outsider, command(outsider.root / name)) for name in names]


@contextlib.contextmanager
def _swapped(directory: Path, target: Path) -> Iterator[None]:
    """Replace the directory with a link to the target and back, as fast as possible."""
    stop = threading.Event()

    def swap() -> None:
        aside, link = directory.with_name("aside"), directory.with_name("a-link")
        while not stop.is_set():
            with contextlib.suppress(OSError):
                link.symlink_to(target)
                directory.rename(aside)
                link.rename(directory)
            with contextlib.suppress(OSError):
                directory.unlink()
            with contextlib.suppress(OSError):
                aside.rename(directory)
            with contextlib.suppress(OSError):
                os.unlink(link)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@ATTEMPTS("OK", "ABORTED", "PERMISSION_DENIED")
def swaps_a_directory_for_a_link_while_files_are_opened_and_published(outsider: Outsider) -> list[str]:
    directory = outsider.root / "table" / "day=1"
    directory.mkdir(parents=True)
    with _swapped(directory.parent, outsider.outside):
        statuses = [wrote(outsider, command(directory / f"{number}.parquet")) for number in range(40)]
    with _swapped(directory, outsider.outside):
        statuses += [wrote(outsider, command(directory / f"{number}.parquet")) for number in range(40)]
    # The attacker moved some files while they were open, so the writer could not remove them. Remove these files here.
    for unfinished in outsider.root.rglob("day=1/**/*.updraft"):
        unfinished.unlink()
    return statuses


@ATTEMPTS("OK", "ABORTED", "INVALID_ARGUMENT")
def writes_one_file_twice_at_once(outsider: Outsider) -> list[str]:
    path = outsider.root / "twice.parquet"
    exchanges = [credited(opened(outsider, command(path)), 8192).say(batch(1)) for _ in range(5)]
    finish = said(finish=Finish(batches=1, rows=1000))
    statuses = [exchange.say(finish).half_close().end() for exchange in exchanges]
    whole = pa.parquet.read_table(path).num_rows == ROWS.num_rows
    return statuses if whole else ["a file that is not whole"]


@ATTEMPTS("ABORTED", "PERMISSION_DENIED")
def puts_a_file_where_a_directory_is(outsider: Outsider) -> list[str]:
    (outsider.root / "directory" / "of-others").mkdir(parents=True)
    return [wrote(outsider, command(outsider.root / "directory"))]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_batches_of_no_bytes_that_cost_gigabytes(outsider: Outsider) -> list[str]:
    rows, size = 6000, 10_000
    values = pa.nulls(rows * size)
    lists = pa.Array.from_buffers(pa.list_(pa.null(), size), rows, [None], children=[values])
    dear = [lists, pa.nulls(60 * MIB), pa.array([{}] * 10, pa.struct([])).take(pa.array([0] * (30 * MIB), pa.int32()))]
    return [wrote(outsider, command(outsider.root / "x"), pa.record_batch({"x": array})) for array in dear]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_columns_that_share_values(outsider: Outsider) -> list[str]:
    views = pa.ListViewArray.from_arrays([0] * 1000, [1000] * 1000, pa.array(range(1000)))
    union = pa.UnionArray.from_dense(pa.array([0] * 9, pa.int8()), pa.array([0] * 9, pa.int32()), [pa.array(["x"])])
    return [wrote(outsider, command(outsider.root / "x"), pa.record_batch({"x": array})) for array in (views, union)]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_hostile_arrow(outsider: Outsider) -> list[str]:
    statuses = []
    for schema, messages in hostile_arrow():
        exchange = outsider.exchange(first_message(command(outsider.root / "x"), schema))
        bodies = sum(len(message.data_body) for message in messages)
        if messages:
            credited(exchange, min(bodies + 4096, 32 * MIB))
        statuses.append(exchange.say(*messages).end())
    return statuses


@ATTEMPTS("OK")
def keeps_the_writer_busy_while_others_look_whether_it_lives(outsider: Outsider) -> list[str]:
    dear = pa.record_batch({f"c{column}": pa.array([f"{row}" for row in range(100)]) for column in range(2000)})
    exchange = opened(outsider, command(outsider.root / "dear"), dear.schema)
    for number in range(1, 6):
        credited(exchange, dear.nbytes + 200_000).say(batch(number, dear))
        outsider.is_another_served()
    return [exchange.say(said(finish=Finish(batches=5, rows=500))).half_close().end()]


@ATTEMPTS("UNAUTHENTICATED")
def comes_without_the_right_token(outsider: Outsider) -> list[str]:
    first = first_message(command(outsider.root / "x"), header(ROWS.schema))
    headers: list[Any] = [(), [("authorization", "Bearer wrong")], [("authorization", outsider.token)]]
    exchanges = [outsider.exchange(first, headers=some).end() for some in headers]
    return [*exchanges, *(outsider.call("DoAction", headers=some) for some in headers)]


@ATTEMPTS("PERMISSION_DENIED", "UNIMPLEMENTED", "INVALID_ARGUMENT", "NOT_FOUND")
def calls_what_it_may_not(outsider: Outsider) -> list[str]:
    actions = [_MESSAGES["Action"](type=kind).SerializeToString() for kind in ("updraft.drain", "x\n", "")]
    return [
        *(outsider.call("DoAction", action) for action in actions),
        *(outsider.call(method, b"x") for method in ("DoGet", "DoPut", "GetFlightInfo")),
    ]


_CONNECTIONS: tuple[Callable[[Any], Any], ...] = (
    leaves_handshakes_half_done, floods_with_resets, floods_with_frames_of_nothing,
)  # fmt: skip
for _attempt in _CONNECTIONS:
    ATTEMPTS()(_attempt)
