# SPDX-License-Identifier: Apache-2.0
"""Attempts to exceed a worker's limits, against a pool with small limits, and to lift those limits.

`ENDED` attempts continue until the pool ends their worker, within bounds that spare the machine. `REFUSED` attempts
meet a limit that the kernel enforces.
"""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts, system_call

MIB = 1 << 20
LIMITS = (
    "--worker-memory-bytes=268435456",
    "--worker-processes=24",
    "--worker-scratch-bytes=67108864",
    "--worker-file-bytes=67108864",
    "--worker-descriptors=512",
)
_BEYOND_MEMORY_BYTES = 384 * MIB
_BEYOND_FILE_BYTES = 65 * MIB
_BEYOND_PROCESSES = 40
_PATIENCE_SECONDS = 30

ENDED = Attempts()
REFUSED = Attempts()


def held(*kept: Any) -> str:
    """Keep references to these objects until the pool ends the worker; return proof if the worker survives."""
    import time

    time.sleep(_PATIENCE_SECONDS)
    return f"kept {len(kept)} things for {_PATIENCE_SECONDS} seconds"


def written(buffer: Any, size: int) -> Any:
    """Write to every page of the buffer."""
    page = b"\x01" * MIB
    for start in range(0, size, MIB):
        buffer[start : start + MIB] = page
    return buffer


def children(count: int, work: Any) -> str:
    """Fork this many children, each of which works and then waits."""
    import os

    for _ in range(count):
        if os.fork() == 0:
            try:
                held(work())
            finally:
                os._exit(0)
    return held()


@ENDED
def memory_of_its_own(target: Any) -> Any:
    return held(written(bytearray(_BEYOND_MEMORY_BYTES), _BEYOND_MEMORY_BYTES))


@ENDED
def memory_that_is_shared(target: Any) -> Any:
    import mmap

    size = 48 * MIB
    return held(*(written(mmap.mmap(-1, size), size) for _ in range(_BEYOND_MEMORY_BYTES // size)))


@ENDED
def memory_that_is_shared_and_no_longer_mapped(target: Any) -> Any:
    import mmap

    size = 48 * MIB
    taken = [mmap.mmap(-1, size) for _ in range(_BEYOND_MEMORY_BYTES // size)]
    for memory in taken:
        for start in range(0, size, MIB):
            memory[start : start + MIB] = b"\x01" * MIB
            memory.madvise(mmap.MADV_DONTNEED)
    return held(*taken)


@ENDED
def memory_in_many_files_in_memory(target: Any) -> Any:
    from multiprocessing.shared_memory import SharedMemory

    size = 48 * MIB
    taken = [SharedMemory(create=True, size=size) for _ in range(_BEYOND_MEMORY_BYTES // size)]
    for memory in taken:
        written(memory.buf, size)
    return held(*taken)


@ENDED
def memory_in_files_in_memory_that_nobody_maps(target: Any) -> Any:
    import os

    for number in range(_BEYOND_MEMORY_BYTES // (48 * MIB)):
        file = os.open(f"/dev/shm/taken-{number}", os.O_WRONLY | os.O_CREAT)
        for _ in range(48):
            os.write(file, b"\x01" * MIB)
        os.close(file)
    return held()


@ENDED
def memory_of_arrow(target: Any) -> Any:
    import pyarrow as pa

    buffers = []
    for _ in range(_BEYOND_MEMORY_BYTES // (16 * MIB)):
        buffer = pa.allocate_buffer(16 * MIB)
        written(memoryview(buffer).cast("B"), 16 * MIB)
        buffers.append(buffer)
    return held(*buffers)


@ENDED
def memory_of_page_tables(target: Any) -> Any:
    import mmap

    # Pages that are only read all map to one page of zeros, but each touched range needs a page table.
    page = mmap.PAGESIZE
    reach = page * (page // 8)
    no_reserve, no_huge_pages = 0x4000, 15
    room = mmap.mmap(
        -1,
        _BEYOND_MEMORY_BYTES // page * reach,
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve,
        prot=mmap.PROT_READ,
    )
    room.madvise(no_huge_pages)
    for start in range(0, len(room), reach):
        room[start]
    return held(room)


@ENDED
def memory_of_its_children(target: Any) -> Any:
    size = _BEYOND_MEMORY_BYTES // 4
    return children(4, lambda: written(bytearray(size), size))


@ENDED
def memory_of_a_grandchild_that_left_its_session(target: Any) -> Any:
    import os

    def left() -> Any:
        os.setsid()
        if os.fork() == 0:
            held(written(bytearray(_BEYOND_MEMORY_BYTES), _BEYOND_MEMORY_BYTES))
            os._exit(0)
        os._exit(0)

    return children(1, left)


@ENDED
def memory_of_a_process_whose_first_thread_has_ended(target: Any) -> Any:
    import ctypes
    import os
    import threading

    def take() -> None:
        held(written(bytearray(_BEYOND_MEMORY_BYTES), _BEYOND_MEMORY_BYTES))
        os._exit(0)

    if os.fork() == 0:
        threading.Thread(target=take).start()
        ctypes.CDLL(None).pthread_exit(None)
    return held()


@ENDED
def memory_of_a_program(target: Any) -> Any:
    import subprocess
    import sys

    code = f"import time; kept = b'x' * {_BEYOND_MEMORY_BYTES}; time.sleep({_PATIENCE_SECONDS})"
    return held(subprocess.Popen([sys.executable, "-c", code]))


@ENDED
def programs_without_end(target: Any) -> Any:
    import subprocess

    return held(*(subprocess.Popen(["sleep", str(_PATIENCE_SECONDS)]) for _ in range(_BEYOND_PROCESSES)))


@ENDED
def programs_that_start_each_other(target: Any) -> Any:
    import subprocess
    import tempfile

    script = tempfile.NamedTemporaryFile("w", suffix=".sh")
    script.write(f'if [ "$1" -gt 0 ]; then sh "$0" $(($1 - 1)); fi; sleep {_PATIENCE_SECONDS}\n')
    script.flush()
    return held(script, subprocess.Popen(["sh", script.name, str(_BEYOND_PROCESSES)]))


@ENDED
def threads_without_end(target: Any) -> Any:
    import threading

    for _ in range(500):
        threading.Thread(target=held, daemon=True).start()
    return held()


@ENDED
def scratch_of_many_large_files(target: Any) -> Any:
    import tempfile

    directory = tempfile.mkdtemp()
    for number in range(3):
        with open(f"{directory}/{number}", "wb") as file:
            file.write(bytes(32 * MIB))
    return held()


@ENDED
def scratch_in_a_closed_directory(target: Any) -> Any:
    import os
    import tempfile

    directory = tempfile.mkdtemp()
    for number in range(3):
        with open(f"{directory}/{number}", "wb") as file:
            file.write(bytes(32 * MIB))
    os.chmod(directory, 0)
    os.chmod(tempfile.gettempdir(), 0)
    return held()


@ENDED
def scratch_files_without_end(target: Any) -> Any:
    import os
    import tempfile

    directory = tempfile.mkdtemp()
    for number in range(12_000):
        os.symlink("nothing", f"{directory}/{number}")
    return held()


@REFUSED
def a_large_file(target: Any) -> Any:
    import tempfile

    with tempfile.TemporaryFile() as file:
        for _ in range(_BEYOND_FILE_BYTES // MIB):
            file.write(bytes(MIB))
            file.flush()
        return file.tell()


@REFUSED
def a_large_file_of_holes(target: Any) -> Any:
    import tempfile

    with tempfile.TemporaryFile() as file:
        return file.truncate(1 << 50)


@REFUSED
def a_large_file_in_memory(target: Any) -> Any:
    import os

    os.ftruncate(os.open("/dev/shm/large", os.O_RDWR | os.O_CREAT), _BEYOND_FILE_BYTES)
    return "it is there"


@REFUSED
def a_file_in_memory_without_a_name(target: Any) -> Any:
    import os

    os.write(os.memfd_create("taken"), bytes(MIB))
    return "it is there"


@REFUSED
def room_set_aside_for_a_file(target: Any) -> Any:
    import os

    os.posix_fallocate(os.open("/dev/shm/set-aside", os.O_RDWR | os.O_CREAT), 0, _BEYOND_FILE_BYTES)
    return "it is there"


@REFUSED
def watches_that_a_user_has_few_of(target: Any) -> Any:
    import ctypes
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    taken = [libc.inotify_init1(0) for _ in range(100)]
    if min(taken) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return len(taken)


@REFUSED
def terminals_that_a_machine_has_few_of(target: Any) -> Any:
    import os

    return len([os.openpty() for _ in range(200)])


@REFUSED
def descriptors_without_end(target: Any) -> Any:
    import os

    taken = [os.pipe() for _ in range(300)]
    return len(taken)


@REFUSED
def a_higher_limit_of_descriptors(target: Any) -> Any:
    return raised("RLIMIT_NOFILE")


@REFUSED
def a_higher_limit_of_files(target: Any) -> Any:
    return raised("RLIMIT_FSIZE")


@REFUSED
def a_higher_limit_by_the_other_call(target: Any) -> Any:
    import ctypes
    import os
    import resource

    infinite = (ctypes.c_ulong * 2)(2**64 - 1, 2**64 - 1)
    system_call("prlimit64", os.getpid(), resource.RLIMIT_FSIZE, infinite, 0)
    return resource.getrlimit(resource.RLIMIT_FSIZE)


@REFUSED
def a_higher_limit_in_a_program(target: Any) -> Any:
    import errno
    import subprocess

    ended = subprocess.run(["/bin/sh", "-c", "ulimit -H -n 1048576 && ulimit -n"], capture_output=True, check=False)
    if ended.returncode:
        raise OSError(errno.EPERM, ended.stderr.decode())
    return ended.stdout


def its_own_worker(target: Any) -> Any:
    """Kill this worker, so that the pool has to fork another worker."""
    import os

    os.kill(os.getpid(), 9)


def raised(name: str) -> Any:
    """Raise the limit; return it if that succeeded."""
    import errno
    import resource

    which = getattr(resource, name)
    _, hard = resource.getrlimit(which)
    try:
        resource.setrlimit(which, (hard + 1, hard + 1))
    except ValueError as error:
        # Python raises ValueError here for EPERM.
        raise OSError(errno.EPERM, str(error)) from None
    return resource.getrlimit(which)
