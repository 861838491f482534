# SPDX-License-Identifier: Apache-2.0
"""System calls that the filter refuses: the error in a worker, and the result without the filter."""

import errno
import fcntl
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator

import pytest
from sandboxed_children import NOWHERE, SANDBOX, error_of, in_a_child, needs_filters, refused

from updraft_server.linux.system_calls import call_number
from updraft_server.sandbox.refused_calls import refused_calls

SUPERVISOR = os.getppid()

pytestmark = needs_filters

ALWAYS: dict[str, tuple[int, ...]] = {
    "acct": (NOWHERE,),
    "add_key": (NOWHERE, NOWHERE, 0, 0, 0),
    "bpf": (-1, 0, 0),
    "chroot": (NOWHERE,),
    "clock_settime": (-1, 0),
    "clone3": (NOWHERE, 0),
    "delete_module": (NOWHERE, 0),
    "fanotify_init": (-1, 0),
    "file_setattr": (-1, NOWHERE, NOWHERE, 0, 0),
    "finit_module": (-1, NOWHERE, 0),
    "fremovexattr": (-1, NOWHERE),
    "fsconfig": (-1, 0, 0, 0, 0),
    "fsetxattr": (-1, NOWHERE, 0, 0, 0),
    "fsmount": (-1, 0, 0),
    "fsopen": (NOWHERE, 0),
    "fspick": (-1, NOWHERE, 0),
    "init_module": (NOWHERE, 0, NOWHERE),
    "inotify_init": (),
    "inotify_init1": (-1,),
    "io_uring_enter": (-1, 0, 0, 0, 0),
    "io_uring_register": (-1, 0, 0, 0),
    "io_uring_setup": (0, NOWHERE),
    "ioperm": (0, 0, 0),
    "iopl": (-1,),
    "kcmp": (os.getpid(), os.getpid(), 2, 0, 0),
    "kexec_file_load": (-1, -1, 0, 0, -1),
    "kexec_load": (0, -1, 0, -1),
    "keyctl": (-1,),
    "lremovexattr": (NOWHERE, NOWHERE),
    "lsetxattr": (NOWHERE, NOWHERE, 0, 0, 0),
    "memfd_create": (NOWHERE, 0),
    "memfd_secret": (-1,),
    "mount": (0, NOWHERE, 0, 0, 0),
    "mount_setattr": (-1, NOWHERE, -1, 0, 0),
    "move_mount": (-1, NOWHERE, -1, NOWHERE, 0),
    "mq_open": (NOWHERE, 0),
    "mq_unlink": (NOWHERE,),
    "msgctl": (-1, -1, 0),
    "msgget": (1, 0),
    "msgrcv": (-1, NOWHERE, 0, 0, 0),
    "msgsnd": (-1, NOWHERE, 0, 0),
    "open_by_handle_at": (-1, NOWHERE, 0),
    "open_tree": (-1, NOWHERE, 0),
    "open_tree_attr": (-1, NOWHERE, 0, 0, 0),
    "perf_event_open": (NOWHERE, 0, -1, -1, 0),
    "pidfd_getfd": (-1, 0, 0),
    "pidfd_send_signal": (-1, 0, 0, 0),
    "pivot_root": (NOWHERE, NOWHERE),
    "process_vm_readv": (os.getpid(), 0, 0, 0, 0, 0),
    "process_vm_writev": (os.getpid(), 0, 0, 0, 0, 0),
    "ptrace": (-1, 0, 0, 0),
    "quotactl": (-1, NOWHERE, 0, 0),
    "quotactl_fd": (-1, -1, 0, 0),
    "reboot": (0, 0, 0, 0),
    "removexattr": (NOWHERE, NOWHERE),
    "removexattrat": (-1, NOWHERE, 0, NOWHERE),
    "request_key": (NOWHERE, NOWHERE, 0, 0),
    "sendfile": (-1, -1, 0, 1),
    "semctl": (-1, 0, -1, 0),
    "semget": (1, -1, 0),
    "semop": (-1, NOWHERE, 1),
    "semtimedop": (-1, NOWHERE, 1, 0),
    "setdomainname": (NOWHERE, -1),
    "sethostname": (NOWHERE, -1),
    "setns": (-1, 0),
    "settimeofday": (0, 0),
    "setxattr": (NOWHERE, NOWHERE, 0, 0, 0),
    "setxattrat": (-1, NOWHERE, 0, NOWHERE, 0, 0),
    "shmat": (-1, 0, 0),
    "shmctl": (-1, -1, 0),
    "shmget": (1, 0, 0),
    "splice": (-1, 0, -1, 0, 1, 0),
    "swapoff": (NOWHERE,),
    "swapon": (NOWHERE, 0),
    "syslog": (-1, 0, 0),
    "tee": (-1, -1, 1, 0),
    "umount2": (NOWHERE, 0),
    "userfaultfd": (-1,),
    "vhangup": (),
    "vmsplice": (-1, NOWHERE, 1, 0),
}


@pytest.mark.parametrize("call", ALWAYS)
def test_a_call_that_no_function_needs_is_refused(call: str) -> None:
    if call_number(call) is None:
        pytest.skip("this architecture does not have it")
    (error,) = (rule.error for rule in refused_calls() if rule.call == call)
    assert refused(lambda: error_of(call, *ALWAYS[call]), error)


def test_every_call_that_is_always_refused_is_tried() -> None:
    assert {rule.call for rule in refused_calls() if not rule.when} == set(ALWAYS)


NAMESPACES = {
    "mount": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_no_namespace_is_made(namespace: str) -> None:
    flag = NAMESPACES[namespace]
    # Without the filter the call fails as well and makes no child: handlers cannot be shared without memory.
    handlers_alone = 0x800
    assert refused(lambda: error_of("clone", flag | handlers_alone, 0, 0, 0, 0), errno.EPERM)
    assert refused(lambda: error_of("unshare", flag), errno.EPERM)


def test_no_time_namespace_is_made_and_no_child_of_the_zygote() -> None:
    parent, handlers_alone = 0x8000, 0x800
    assert refused(lambda: error_of("clone", parent | handlers_alone, 0, 0, 0, 0), errno.EPERM)
    assert refused(lambda: error_of("unshare", 0x80), errno.EPERM)


def test_what_a_process_shares_with_its_threads_alone_may_be_unshared() -> None:
    shared_descriptors = 0x400
    assert in_a_child(lambda: error_of("unshare", shared_descriptors), sandboxed=SANDBOX) == 0


def test_a_personality_is_asked_for_but_not_changed() -> None:
    no_random_addresses = 0x40000
    assert refused(lambda: error_of("personality", no_random_addresses), errno.EPERM)
    assert in_a_child(lambda: error_of("personality", 0xFFFFFFFF), sandboxed=SANDBOX) == 0


@pytest.fixture(scope="module")
def victim() -> Iterator[int]:
    """Fork another process of this user."""
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def limit_descriptors(pid: int) -> int:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, resource.prlimit(pid, resource.RLIMIT_NOFILE))
    return 0


def set_priority(which: int, who: int) -> int:
    # The current priority, because raising it could not be undone.
    os.setpriority(which, who, os.getpriority(which, who))
    return 0


def set_affinity(pid: int) -> int:
    os.sched_setaffinity(pid, os.sched_getaffinity(pid))
    return 0


def set_scheduler(pid: int) -> int:
    os.sched_setscheduler(pid, os.sched_getscheduler(pid), os.sched_param(0))
    return 0


def set_parameters(pid: int) -> int:
    os.sched_setparam(pid, os.sched_param(0))
    return 0


ON_A_PROCESS: dict[str, Callable[[int], int]] = {
    "limits": limit_descriptors,
    "priority": lambda pid: set_priority(os.PRIO_PROCESS, pid),
    "affinity": set_affinity,
    "scheduler": set_scheduler,
    "scheduling parameters": set_parameters,
    "scheduling attributes": lambda pid: error_of("sched_setattr", pid, NOWHERE, 0) % errno.EFAULT,
    "priority of input and output": lambda pid: error_of("ioprio_set", 1, pid, 0),
    "pages": lambda pid: error_of("move_pages", pid, 0, 0, 0, 0, 0),
    "all pages": lambda pid: error_of("migrate_pages", pid, 0, 0, 0),
}


@pytest.mark.parametrize("what", ON_A_PROCESS)
def test_limits_and_priorities_are_set_of_oneself_alone(victim: int, what: str) -> None:
    act = ON_A_PROCESS[what]
    without = in_a_child(lambda: act(0), sandboxed=None)
    assert in_a_child(lambda: act(0), sandboxed=SANDBOX) == without
    assert in_a_child(lambda: act(os.getpid()), sandboxed=SANDBOX) == without
    assert refused(lambda: act(victim), errno.EPERM)


def test_limits_of_others_may_be_looked_at(victim: int) -> None:
    def look() -> int:
        resource.prlimit(victim, resource.RLIMIT_NOFILE)
        return 0

    assert in_a_child(look, sandboxed=SANDBOX) == 0


@pytest.mark.parametrize("call", ["setpriority", "ioprio_set"])
def test_priorities_of_all_processes_of_a_user_stay(call: str) -> None:
    kind = {"setpriority": os.PRIO_USER, "ioprio_set": 3}[call]
    # No user has this id.
    assert refused(lambda: error_of(call, kind, 0x7FFFFFF0, 0), errno.EPERM)
    assert refused(lambda: error_of(call, 77, 0, 0), errno.EPERM)


def kill(pid: int) -> int:
    os.kill(pid, 0)
    return 0


POOL: dict[str, Callable[[], int]] = {
    "init": lambda: 1,
    "the zygote": os.getppid,
    "the supervisor": lambda: SUPERVISOR,
    # The test process stands in for the front.
    "the front": os.getpid,
}
SIGNALS: dict[str, Callable[[int], int]] = {
    "kill": kill,
    "tkill": lambda pid: error_of("tkill", pid, 0),
    "tgkill": lambda pid: error_of("tgkill", pid, pid, 0),
    "rt_sigqueueinfo": lambda pid: error_of("rt_sigqueueinfo", pid, 0, NOWHERE),
    "rt_tgsigqueueinfo": lambda pid: error_of("rt_tgsigqueueinfo", pid, pid, 0, NOWHERE),
}


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("whom", POOL)
def test_the_pools_own_processes_get_no_signal(how: str, whom: str) -> None:
    assert refused(lambda: SIGNALS[how](POOL[whom]()), errno.EPERM)


def test_neither_the_pools_group_nor_everybody_gets_a_signal() -> None:
    group = os.getpgrp()
    assert refused(lambda: kill(-group), errno.EPERM)
    assert refused(lambda: kill(-1), errno.EPERM)


@pytest.mark.parametrize("whom", POOL)
def test_no_descriptor_sends_signals_to_the_pool(whom: str) -> None:
    def own_a_pipe(pid: int) -> int:
        reading, _writing = os.pipe()
        fcntl.fcntl(reading, fcntl.F_SETOWN, pid)
        return 0

    assert refused(lambda: own_a_pipe(POOL[whom]()), errno.EPERM)


@pytest.mark.parametrize("number", [0x8901, 0x8902, 0x5412, 0x541C])
def test_neither_a_descriptors_owner_nor_a_terminals_input_is_set_by_pointer(number: int) -> None:
    assert refused(lambda: error_of("ioctl", 0, number, NOWHERE), errno.EPERM)
    assert refused(lambda: error_of("fcntl", 0, 15, NOWHERE), errno.EPERM)


ATTRIBUTES = {
    "flags": 0x40086602,
    "flags, as 32 bits": 0x40046602,
    "extended flags and project": 0x401C5820,
    "version": 0x40087602,
    "version, as 32 bits": 0x40047602,
    "version of ext4": 0x40086604,
    "verity": 0x40806685,
    "encryption": 0x800C6613,
    "flags of a subvolume": 0x4008941A,
    "end of a subvolume": 0x5000940F,
}


@pytest.mark.parametrize("what", ATTRIBUTES)
def test_attributes_of_a_file_are_not_set_by_a_descriptor(what: str) -> None:
    assert refused(lambda: error_of("ioctl", -1, ATTRIBUTES[what], NOWHERE), errno.EPERM)


@pytest.mark.parametrize("number", [0x40049409, 0x4020940D, 0xC0189436, 0x80086601])
def test_files_are_cloned_and_their_flags_read(number: int) -> None:
    assert in_a_child(lambda: error_of("ioctl", -1, number, NOWHERE), sandboxed=SANDBOX) == errno.EBADF


def test_a_worker_stays_hidden_and_the_parent_of_its_daemons() -> None:
    dumpable, subreaper = 4, 36
    assert refused(lambda: error_of("prctl", dumpable, 1, 0, 0, 0), errno.EPERM)
    assert refused(lambda: error_of("prctl", subreaper, 0, 0, 0, 0), errno.EPERM)
    assert in_a_child(lambda: error_of("prctl", dumpable, 0, 0, 0, 0), sandboxed=SANDBOX) == 0
    assert in_a_child(lambda: error_of("prctl", subreaper, 1, 0, 0, 0), sandboxed=SANDBOX) == 0


def open_socket(family: int, kind: int, protocol: int = 0) -> int:
    socket.socket(family, kind, protocol).close()
    return 0


@pytest.mark.parametrize(
    ("family", "kind", "protocol", "error"),
    [
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP, errno.EPERM),
        (socket.AF_INET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_ICMP, errno.EPERM),
        (socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6, errno.EPERM),
        (socket.AF_INET, 10, 0, errno.EPERM),
        (socket.AF_PACKET, socket.SOCK_RAW, 0, errno.EAFNOSUPPORT),
        (socket.AF_PACKET, socket.SOCK_DGRAM, 0, errno.EAFNOSUPPORT),
        (socket.AF_NETLINK, socket.SOCK_RAW, 9, errno.EPROTONOSUPPORT),
        (socket.AF_NETLINK, socket.SOCK_RAW, 15, errno.EPROTONOSUPPORT),
        (socket.AF_ALG, socket.SOCK_SEQPACKET, 0, errno.EAFNOSUPPORT),
        (socket.AF_VSOCK, socket.SOCK_STREAM, 0, errno.EAFNOSUPPORT),
    ],
)
def test_packets_and_families_that_functions_do_not_need_are_refused(
    family: int, kind: int, protocol: int, error: int
) -> None:
    assert refused(lambda: open_socket(family, kind, protocol), error)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_UNIX, socket.SOCK_SEQPACKET),
        (socket.AF_INET, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM),
        (socket.AF_NETLINK, socket.SOCK_RAW),
    ],
)
def test_sockets_that_functions_need_are_there(family: int, kind: int) -> None:
    assert in_a_child(lambda: open_socket(family, kind), sandboxed=SANDBOX) == 0
