# SPDX-License-Identifier: Apache-2.0
"""Attempts to read what belongs to the pool or to another owner."""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts, exchange_memory, holds_secret, system_call

ATTEMPTS = Attempts()


def first_readable(pid: int) -> tuple[int, int]:
    """Return the address range of a process's first writable memory, or zeros without such memory."""
    import re

    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            if "[heap]" in line or " rw-p" in line:
                begin, end = (int(part, 16) for part in re.split("[- ]", line)[:2])
                return begin, end
    return 0, 0


def read_memory(pid: int) -> bytes:
    """Read the first bytes of a process's writable memory through /proc."""
    begin, _ = first_readable(pid)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(begin)
        return memory.read(64)


def read_memory_directly(pid: int) -> int:
    """Read memory with process_vm_readv, at an address that is the same in all forks of one process."""
    import ctypes
    import os

    begin, _ = first_readable(os.getpid())
    return exchange_memory("process_vm_readv", pid, ctypes.create_string_buffer(16), begin)


@ATTEMPTS
def tokens_file(target: Any) -> Any:
    with open(target.tokens) as file:
        return file.read()


@ATTEMPTS
def tls_key(target: Any) -> Any:
    with open(target.key) as file:
        return file.read()


@ATTEMPTS
def tls_key_through_a_link(target: Any) -> Any:
    import os
    import tempfile

    path = os.path.join(tempfile.mkdtemp(), "link")
    os.symlink(target.key, path)
    with open(path) as file:
        return file.read()


@ATTEMPTS
def tls_key_through_a_hard_link(target: Any) -> Any:
    import os
    import tempfile

    path = os.path.join(tempfile.mkdtemp(), "link")
    os.link(target.key, path)
    with open(path) as file:
        return file.read()


@ATTEMPTS
def tls_key_by_a_program(target: Any) -> Any:
    import subprocess

    done = subprocess.run(["cat", target.key], capture_output=True)
    return done.stdout


@ATTEMPTS
def tls_key_through_the_root_of_another(target: Any) -> Any:
    with open(f"/proc/{target.front}/root{target.key}") as file:
        return file.read()


@ATTEMPTS
def tls_key_by_its_handle(target: Any) -> Any:
    import ctypes
    import os

    handle = ctypes.create_string_buffer(b"\x08\x00\x00\x00\x01\x00\x00\x00" + bytes(128))
    root = os.open("/", os.O_RDONLY)
    return system_call("open_by_handle_at", root, ctypes.byref(handle), os.O_RDONLY)


@ATTEMPTS
def environment_of_the_front(target: Any) -> Any:
    with open(f"/proc/{target.front}/environ", "rb") as file:
        return file.read()


@ATTEMPTS
def environment_of_the_zygote(target: Any) -> Any:
    with open(f"/proc/{target.zygote}/environ", "rb") as file:
        return file.read()


@ATTEMPTS
def environment_of_the_supervisor(target: Any) -> Any:
    with open(f"/proc/{target.supervisor}/environ", "rb") as file:
        return file.read()


@ATTEMPTS
def environment_of_a_neighbour(target: Any) -> Any:
    with open(f"/proc/{target.victim}/environ", "rb") as file:
        return file.read()


@ATTEMPTS
def memory_of_the_front(target: Any) -> Any:
    return read_memory(target.front)


@ATTEMPTS
def memory_of_the_zygote(target: Any) -> Any:
    return read_memory(target.zygote)


@ATTEMPTS
def memory_of_the_supervisor(target: Any) -> Any:
    return read_memory(target.supervisor)


@ATTEMPTS
def memory_of_a_neighbour(target: Any) -> Any:
    return read_memory(target.victim)


@ATTEMPTS
def memory_of_a_neighbour_in_one_call(target: Any) -> Any:
    return read_memory_directly(target.victim)


@ATTEMPTS
def memory_of_the_front_in_one_call(target: Any) -> Any:
    return read_memory_directly(target.front)


@ATTEMPTS
def memory_of_the_zygote_by_a_program(target: Any) -> Any:
    import subprocess
    import sys

    code = f"print(open('/proc/{target.zygote}/environ','rb').read())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).stdout


@ATTEMPTS
def a_neighbour_in_a_debugger(target: Any) -> Any:
    attach = 16
    return system_call("ptrace", attach, target.victim, 0, 0) == 0


@ATTEMPTS
def a_neighbour_in_a_quiet_debugger(target: Any) -> Any:
    seize = 0x4206
    return system_call("ptrace", seize, target.victim, 0, 0) == 0


@ATTEMPTS
def the_front_in_a_debugger(target: Any) -> Any:
    attach = 16
    return system_call("ptrace", attach, target.front, 0, 0) == 0


@ATTEMPTS
def descriptors_of_the_front(target: Any) -> Any:
    import os

    return [os.readlink(f"/proc/{target.front}/fd/{name}") for name in os.listdir(f"/proc/{target.front}/fd")]


@ATTEMPTS
def descriptors_of_a_neighbour(target: Any) -> Any:
    import os

    return [os.readlink(f"/proc/{target.victim}/fd/{name}") for name in os.listdir(f"/proc/{target.victim}/fd")]


@ATTEMPTS
def a_socket_of_the_front(target: Any) -> Any:
    pidfd = system_call("pidfd_open", target.front, 0)
    return any(system_call("pidfd_getfd", pidfd, number, 0) for number in range(3, 32))


@ATTEMPTS
def a_socket_of_a_neighbour(target: Any) -> Any:
    pidfd = system_call("pidfd_open", target.victim, 0)
    return system_call("pidfd_getfd", pidfd, 3, 0)


@ATTEMPTS
def the_layout_of_a_neighbour(target: Any) -> Any:
    with open(f"/proc/{target.victim}/maps") as file:
        return file.read()


@ATTEMPTS
def the_pages_of_a_neighbour(target: Any) -> Any:
    with open(f"/proc/{target.victim}/pagemap", "rb") as file:
        return file.read(8)


@ATTEMPTS
def the_stack_of_a_neighbour(target: Any) -> Any:
    with open(f"/proc/{target.victim}/stack") as file:
        return file.read()


@ATTEMPTS
def the_system_call_of_a_neighbour(target: Any) -> Any:
    with open(f"/proc/{target.victim}/syscall") as file:
        return file.read()


@ATTEMPTS
def the_directory_of_a_neighbour(target: Any) -> Any:
    import os

    return os.listdir(f"/proc/{target.victim}/cwd/")


@ATTEMPTS
def files_in_common_with_a_neighbour(target: Any) -> Any:
    import os

    return system_call("kcmp", os.getpid(), target.victim, 2, 0, 0) >= 0


@ATTEMPTS
def a_temporary_file_of_a_neighbour(target: Any) -> Any:
    with open(target.victims_file) as file:
        return file.read()


@ATTEMPTS
def artifacts_of_others(target: Any) -> Any:
    import os

    return [name for name in os.listdir(target.artifacts) if name]


@ATTEMPTS
def an_artifact_of_another_by_its_path(target: Any) -> Any:
    with open(target.victims_artifact, "rb") as file:
        return file.read()


@ATTEMPTS
def secrets_in_its_own_environment(target: Any) -> Any:
    import os

    return [
        name
        for name, value in os.environb.items()
        if target.shifted_token in value.translate(bytes(range(1, 256)) + b"\0")
        or b"TOKEN" in name
        or b"SECRET" in name
    ]


@ATTEMPTS
def secrets_in_its_own_memory(target: Any) -> Any:
    """Search for the token, because every fork contains what the zygote once held."""
    return holds_secret(target.shifted_token)


@ATTEMPTS
def descriptors_that_it_inherited(target: Any) -> Any:
    import os

    # Allowed are descriptors 0 to 2, the exchange's socket, the lifeline, and the descriptor of the listing.
    own = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if int(name) > 4]
    return [name for name in own if not name.startswith("/proc")]


@ATTEMPTS
def keys_of_the_session(target: Any) -> Any:
    read, session = 11, -3
    import ctypes

    return system_call("keyctl", read, session, ctypes.create_string_buffer(64), 64)


@ATTEMPTS
def keys_by_name(target: Any) -> Any:
    import ctypes

    kind, name = ctypes.create_string_buffer(b"user"), ctypes.create_string_buffer(b"updraft")
    return system_call("add_key", kind, name, kind, 4, -5)


@ATTEMPTS
def events_of_every_process(target: Any) -> Any:
    import ctypes

    attributes = ctypes.create_string_buffer(b"\x01\x00\x00\x00\x70\x00\x00\x00" + bytes(120))
    return system_call("perf_event_open", attributes, target.front, -1, -1, 0)


@ATTEMPTS
def faults_of_pages(target: Any) -> Any:
    return system_call("userfaultfd", 0)


@ATTEMPTS
def the_log_of_the_kernel(target: Any) -> Any:
    import ctypes

    read_all = 3
    return system_call("syslog", read_all, ctypes.create_string_buffer(64), 64)


@ATTEMPTS
def programs_in_the_kernel(target: Any) -> Any:
    import ctypes

    return system_call("bpf", 0, ctypes.create_string_buffer(bytes(128)), 128)


@ATTEMPTS
def changes_of_files_of_others(target: Any) -> Any:
    return system_call("fanotify_init", 0, 0)


@ATTEMPTS
def where_the_pages_of_others_lie(target: Any) -> Any:
    import ctypes

    page, status = (ctypes.c_void_p * 1)(0x400000), (ctypes.c_int * 1)()
    system_call("move_pages", target.victim, 1, page, None, status, 0)
    return True


@ATTEMPTS
def what_the_supervisor_tells_a_zygote(target: Any) -> Any:
    import os
    import socket
    import stat

    for descriptor in range(1024):
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
        except OSError:
            continue
        with socket.socket(fileno=os.dup(descriptor)) as end:
            # The pool's own processes exchange packets over unnamed connections; a worker should have stream sockets
            # only.
            if end.type == socket.SOCK_SEQPACKET:
                return f"inherited as {descriptor}"
    return None


@ATTEMPTS
def a_way_to_a_model(target: Any) -> Any:
    """Look on every descriptor for the connection to models, which a worker closes before it is bound to a session."""
    import json
    import os
    import select
    import socket

    for descriptor in range(1024):
        try:
            end = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue
        with end:
            if end.type != socket.SOCK_SEQPACKET:
                continue
            end.send(json.dumps(["Connect", target.model, "1"]).encode(), socket.MSG_DONTWAIT)
            if select.select([end], [], [], 10)[0]:
                return descriptor, socket.recv_fds(end, 1024, 1)
    return None
