# SPDX-License-Identifier: Apache-2.0
"""Attempts to change files and memory of the pool, of another owner or of the machine."""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts, directory_of, exchange_memory

ATTEMPTS = Attempts()


def overwrite(path: str) -> str:
    """Append nothing to a file that must exist, which proves that this process may append to the file."""
    import os

    os.close(os.open(path, os.O_WRONLY))
    return "open for writing"


def make_in(directory: str) -> str:
    """Make a file in the directory, and remove the file."""
    import os

    path = os.path.join(directory, f"planted-{os.getpid()}")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.unlink(path)
    return path


@ATTEMPTS
def tokens_file(target: Any) -> Any:
    return overwrite(target.tokens)


@ATTEMPTS
def tokens_file_by_another(target: Any) -> Any:
    import os
    import tempfile

    with tempfile.NamedTemporaryFile(delete=False) as own:
        own.write(b"mine\n")
    os.rename(own.name, target.tokens)
    return "replaced"


@ATTEMPTS
def length_of_the_tokens_file(target: Any) -> Any:
    import os

    os.truncate(target.tokens, os.stat(target.tokens).st_size)
    return "truncated to its own length"


@ATTEMPTS
def code_of_the_pool(target: Any) -> Any:
    import updraft_server.worker.process as module

    return overwrite(module.__file__)


@ATTEMPTS
def code_beside_the_pool(target: Any) -> Any:
    return make_in(directory_of("updraft_server"))


@ATTEMPTS
def packages_that_every_process_imports(target: Any) -> Any:
    return make_in(directory_of("pyarrow") + "/..")


@ATTEMPTS
def who_can_open_what_everybody_imports(target: Any) -> Any:
    import fcntl
    import os
    import signal

    import pyarrow

    # Any other process that opens the file then waits until the kernel breaks the lease, 45 seconds later.
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    file = os.open(os.path.join(os.path.dirname(pyarrow.__file__), "cuda.py"), os.O_RDONLY)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    return "leased"


@ATTEMPTS
def who_can_change_an_artifact_of_its_own(target: Any) -> Any:
    import fcntl
    import os

    fcntl.fcntl(os.open(target.own_artifact, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
    return "leased"


@ATTEMPTS
def notes_on_the_tokens_file(target: Any) -> Any:
    return noted(target.tokens)


@ATTEMPTS
def notes_on_a_temporary_file_of_a_neighbour(target: Any) -> Any:
    return noted(target.victims_file)


def noted(path: str) -> Any:
    """Set an attribute on a file; a file system without attributes counts as a refusal."""
    import errno
    import os

    try:
        os.setxattr(path, "user.planted", b"1")
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return None
    return os.getxattr(path, "user.planted")


@ATTEMPTS
def the_interpreter(target: Any) -> Any:
    import sys

    return make_in(sys.prefix)


@ATTEMPTS
def compiled_code_of_a_package(target: Any) -> Any:
    import os

    import pyarrow

    return make_in(os.path.join(os.path.dirname(pyarrow.__file__), "__pycache__"))


@ATTEMPTS
def the_runtime_directory(target: Any) -> Any:
    return make_in(target.runtime)


@ATTEMPTS
def who_answers_for_the_front(target: Any) -> Any:
    import contextlib
    import os
    import socket

    # Workers whose front runs in another container look for the front's socket here.
    place = os.path.join(target.runtime, "front.sock")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as impostor:
        impostor.bind(place)
    return "could be bound"


@ATTEMPTS
def the_records_of_workers(target: Any) -> Any:
    return make_in(target.runtime + "/workers")


@ATTEMPTS
def what_the_pool_announces(target: Any) -> Any:
    return overwrite(target.ready_file)


@ATTEMPTS
def an_artifact_of_another(target: Any) -> Any:
    import os

    os.chmod(target.victims_artifact, 0o644)
    return overwrite(target.victims_artifact)


@ATTEMPTS
def an_artifact_of_its_own(target: Any) -> Any:
    import os

    # The application's next exchange reads this artifact, and another worker may be reading it now.
    with open(target.own_artifact, "rb") as file:
        assert file.read()
    os.chmod(target.own_artifact, 0o644)
    return overwrite(target.own_artifact)


@ATTEMPTS
def an_artifact_by_another_in_its_place(target: Any) -> Any:
    import os

    os.rename(target.own_artifact, target.own_artifact + ".old")
    os.rename(target.own_artifact + ".old", target.own_artifact)
    return "renamed"


@ATTEMPTS
def the_store_of_artifacts(target: Any) -> Any:
    import os

    return make_in(os.path.dirname(target.own_artifact))


@ATTEMPTS
def a_temporary_file_of_a_neighbour(target: Any) -> Any:
    return overwrite(target.victims_file)


@ATTEMPTS
def the_temporary_directory_of_a_neighbour(target: Any) -> Any:
    import os

    return make_in(os.path.dirname(target.victims_file))


@ATTEMPTS
def memory_of_a_neighbour(target: Any) -> Any:
    return overwrite(f"/proc/{target.victim}/mem")


@ATTEMPTS
def memory_of_the_zygote(target: Any) -> Any:
    return overwrite(f"/proc/{target.zygote}/mem")


@ATTEMPTS
def memory_of_a_neighbour_in_one_call(target: Any) -> Any:
    import ctypes

    # The page is the same in every fork, and this call overwrites it with its own contents.
    with open("/proc/self/maps") as maps:
        begin = next(int(line.partition("-")[0], 16) for line in maps if " rw-p" in line)
    here = ctypes.create_string_buffer(ctypes.string_at(begin, 8), 8)
    return exchange_memory("process_vm_writev", target.victim, here, begin)


@ATTEMPTS
def who_has_used_the_pool(target: Any) -> Any:
    return overwrite(target.audit)


@ATTEMPTS
def what_somebody_sees_on_a_screen(target: Any) -> Any:
    return overwrite(target.terminal)
