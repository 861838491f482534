# SPDX-License-Identifier: Apache-2.0
"""`mmap.mmap(-1, length)` in a worker, whose filter refuses shared memory without a file."""

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pool_driver import Zygotes, running_pool
from pyspark import cloudpickle
from session_commands import said

from updraft_server.ipc.worker_settings import WorkerSettings

# Workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(params=[False, True], ids=["compatible", "restricted"])
def zygotes(request: pytest.FixtureRequest) -> Iterator[Zygotes]:
    """Start zygotes whose workers may write only to their own files."""
    with tempfile.TemporaryDirectory(prefix="updraft-mappings-") as directory:
        settings = WorkerSettings(allow_session_functions=True, hidden_paths=(directory,))
        started = Zygotes(Path(directory), settings, restricted=request.param)
        yield started
        started.stop()


def it_is_shared_with_a_child() -> str:
    import mmap

    room = mmap.mmap(-1, 8192)
    child = os.fork()
    if child == 0:
        room[4096:4100] = b"four"
        os._exit(0)
    os.waitpid(child, 0)
    return room[4096:4100].decode()


def it_is_written_and_read() -> list[Any]:
    import mmap

    found: list[Any] = []
    for options in (
        {},
        {"access": mmap.ACCESS_WRITE},
        {"access": mmap.ACCESS_COPY},
        {"flags": mmap.MAP_SHARED | mmap.MAP_ANONYMOUS},
        {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS},
        {"prot": mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC},
    ):
        with mmap.mmap(-1, 5000, **options) as room:
            room[4996:] = b"four"
            room.seek(4990)
            room.flush()
            found.append((len(room), room.read(), isinstance(room, mmap.mmap)))
    with mmap.mmap(-1, length=4096, access=mmap.ACCESS_READ) as zeros:
        try:
            zeros[0] = 1
        except TypeError:
            found.append(zeros[:2])
    return found


def it_maps_a_file() -> bytes:
    import mmap
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(b"four")
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return mapped[:]


def it_is_inherited() -> str:
    import mmap

    class Room(mmap.mmap):
        pass

    with Room(-1, 4096) as room:
        return type(room).__name__


def numpy_maps_a_file() -> float:
    import tempfile

    import numpy

    with tempfile.NamedTemporaryFile() as file:
        mapped: Any = numpy.memmap(file.name, dtype="float64", mode="w+", shape=(100,))
        mapped[:] = 2
        mapped.flush()
        return float(numpy.memmap(file.name, dtype="float64", mode="r").sum())


HERE: dict[str, tuple[Callable[[], Any], str]] = {
    "read and written": (it_is_written_and_read, str([(5000, b"\0" * 6 + b"four", True)] * 6 + [b"\0\0"])),
    "a file": (it_maps_a_file, "b'four'"),
    "a class": (it_is_inherited, "Room"),
    "numpy": (numpy_maps_a_file, "200.0"),
}


@pytest.mark.parametrize("what", HERE)
async def test_mappings_do_what_they_do_on_stock(zygotes: Zygotes, what: str) -> None:
    function, outcome = HERE[what]
    async with running_pool(zygotes) as pool:
        assert await said(pool, function) == outcome


def arrays_and_values_are_shared() -> tuple[list[int], int]:
    import multiprocessing

    context = multiprocessing.get_context("fork")
    numbers, total = context.Array("i", 4), context.Value("i", 0)

    def work(number: int) -> None:
        numbers[number] = number
        with total.get_lock():
            total.value += number

    children = [context.Process(target=work, args=(number,)) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return numbers[:], total.value


def joblib_maps_a_large_array() -> float:
    import joblib
    import numpy

    sums = joblib.Parallel(n_jobs=2, max_nbytes=1000)(joblib.delayed(numpy.sum)(numpy.ones(100_000)) for _ in range(2))
    return float(sum(sums))


def more_than_there_is_is_refused() -> str:
    import mmap

    try:
        mmap.mmap(-1, 1 << 60)
    except OSError as error:
        return str(error)
    return ""


def files_are_sent_and_copied() -> list[bytes]:
    import asyncio
    import shutil
    import socket
    from pathlib import Path

    Path("from").write_bytes(b"four" * 1000)
    shutil.copyfile("from", "to")
    found = [Path("to").read_bytes()[:4]]
    sending, receiving = socket.socketpair()
    with Path("from").open("rb") as file, sending, receiving:
        found.append(b"%d" % sending.sendfile(file))
        found.append(receiving.recv(4))

    async def served(file: Any) -> bytes:
        async def answer(reader: Any, writer: Any) -> None:
            await asyncio.get_running_loop().sendfile(writer.transport, file)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        got = await reader.read()
        writer.close()
        server.close()
        return b"%d" % len(got)

    with Path("from").open("rb") as file:
        found.append(asyncio.run(served(file)))
    return found


NO_ROOM = os.strerror(errno.ENOSPC)
WITH_PROCESSES: dict[str, tuple[Callable[[], Any], str]] = {
    "a child": (it_is_shared_with_a_child, "four"),
    "multiprocessing": (arrays_and_values_are_shared, "([0, 1, 2, 3], 6)"),
    "joblib": (joblib_maps_a_large_array, "200000.0"),
    "too much": (
        more_than_there_is_is_refused,
        f"[Errno 28] {1 << 60} bytes of shared memory: {NO_ROOM}; private memory (MAP_PRIVATE) needs no file",
    ),
    "files": (files_are_sent_and_copied, "[b'four', b'4000', b'four', b'4000']"),
}


@pytest.mark.parametrize("what", WITH_PROCESSES)
@pytest.mark.parametrize("zygotes", [False], indirect=True, ids=["compatible"])
async def test_functions_share_memory_and_send_files(zygotes: Zygotes, what: str) -> None:
    function, outcome = WITH_PROCESSES[what]
    async with running_pool(zygotes) as pool:
        assert await said(pool, function) == outcome
