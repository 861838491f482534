# SPDX-License-Identifier: Apache-2.0
"""Attempts to change what other processes may use, this process's privileges, and the machine itself."""

from __future__ import annotations

from typing import Any

from tests.attacks.alters import overwrite
from tests.attacks.attempts import Attempts, system_call

ATTEMPTS = Attempts()


@ATTEMPTS
def the_chance_of_the_front_to_live(target: Any) -> Any:
    with open(f"/proc/{target.front}/oom_score_adj", "w") as file:
        file.write("0")
    return "could die first"


@ATTEMPTS
def its_own_chance_to_live(target: Any) -> Any:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000" if target.is_root else "0")
    return "others die first"


def set_priority(kind: str, who: int) -> str:
    """Set a priority to its current value, which proves that this process may lower the priority."""
    import os

    which = getattr(os, kind)
    os.setpriority(which, who, os.getpriority(which, who))
    return "could be slowed down"


@ATTEMPTS
def the_priority_of_the_front(target: Any) -> Any:
    return set_priority("PRIO_PROCESS", target.front)


@ATTEMPTS
def the_priority_of_a_neighbour(target: Any) -> Any:
    return set_priority("PRIO_PROCESS", target.victim)


@ATTEMPTS
def the_priority_of_everybody(target: Any) -> Any:
    import os

    return set_priority("PRIO_USER", os.getuid())


@ATTEMPTS
def the_processors_of_the_front(target: Any) -> Any:
    import os

    os.sched_setaffinity(target.front, os.sched_getaffinity(target.front))
    return "could have one processor"


@ATTEMPTS
def the_scheduling_of_a_neighbour(target: Any) -> Any:
    import os

    os.sched_setscheduler(target.victim, os.SCHED_OTHER, os.sched_param(0))
    return "could be idle"


@ATTEMPTS
def the_disk_priority_of_the_front(target: Any) -> Any:
    process, lowest = 1, 2 << 13 | 7
    return system_call("ioprio_set", process, target.front, lowest) == 0


def set_limit(pid: int, kind: str) -> str:
    """Set a limit to its current value, which proves that this process may lower the limit."""
    import resource

    limit = getattr(resource, kind)
    resource.prlimit(pid, limit, resource.prlimit(pid, limit))
    return "could be limited"


@ATTEMPTS
def the_limits_of_the_front(target: Any) -> Any:
    return set_limit(target.front, "RLIMIT_NOFILE")


@ATTEMPTS
def the_limits_of_a_neighbour(target: Any) -> Any:
    return set_limit(target.victim, "RLIMIT_CPU")


@ATTEMPTS
def the_memory_nodes_of_a_neighbour(target: Any) -> Any:
    import ctypes

    nodes = ctypes.c_ulong(1)
    return system_call("migrate_pages", target.victim, 64, ctypes.byref(nodes), ctypes.byref(nodes)) >= 0


@ATTEMPTS
def mounts(target: Any) -> Any:
    import ctypes
    import tempfile

    kind, place = (ctypes.create_string_buffer(text) for text in (b"tmpfs", tempfile.mkdtemp().encode()))
    return system_call("mount", kind, place, kind, 0, None) == 0


@ATTEMPTS
def mounts_the_new_way(target: Any) -> Any:
    import ctypes

    return system_call("fsopen", ctypes.create_string_buffer(b"tmpfs"), 0)


@ATTEMPTS
def a_tree_of_mounts(target: Any) -> Any:
    import ctypes

    clone = 1
    return system_call("open_tree", -100, ctypes.create_string_buffer(b"/"), clone)


@ATTEMPTS
def its_root(target: Any) -> Any:
    import os
    import tempfile

    os.chroot(tempfile.mkdtemp())
    return "another root"


@ATTEMPTS
def its_namespaces(target: Any) -> Any:
    users = 0x10000000
    return system_call("unshare", users) == 0


@ATTEMPTS
def its_mount_namespace(target: Any) -> Any:
    mount_namespace = 0x00020000
    return system_call("unshare", mount_namespace) == 0


@ATTEMPTS
def the_namespaces_of_a_child(target: Any) -> Any:
    import os

    users, ends_quietly = 0x10000000, 17
    pid = system_call("clone", users | ends_quietly, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "a child in a namespace of its own"


@ATTEMPTS
def the_namespaces_of_another(target: Any) -> Any:
    pidfd = system_call("pidfd_open", target.supervisor, 0)
    return system_call("setns", pidfd, 0x00020000) == 0


@ATTEMPTS
def the_name_of_the_machine(target: Any) -> Any:
    import ctypes
    import socket

    name = socket.gethostname().encode()
    return system_call("sethostname", ctypes.create_string_buffer(name), len(name)) == 0


@ATTEMPTS
def the_clock(target: Any) -> Any:
    import time

    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return "the clock is set"


@ATTEMPTS
def settings_of_the_kernel(target: Any) -> Any:
    return overwrite("/proc/sys/kernel/core_pattern")


@ATTEMPTS
def the_log_of_the_kernel(target: Any) -> Any:
    return overwrite("/dev/kmsg")


@ATTEMPTS
def whether_it_ends_with_the_pool(target: Any) -> Any:
    # A process that could write to the lifeline would also hold the lifeline open, so nothing could end the process.
    return overwrite("/proc/self/fd/4")


@ATTEMPTS
def its_cgroup(target: Any) -> Any:
    import os

    with open("/proc/self/cgroup") as file:
        path = "/sys/fs/cgroup" + file.read().splitlines()[-1].split(":", 2)[2]
    return overwrite(os.path.join(path, "cgroup.procs"))


@ATTEMPTS
def modules_of_the_kernel(target: Any) -> Any:
    import ctypes

    nothing = ctypes.create_string_buffer(1)
    return system_call("init_module", nothing, 0, nothing) == 0


@ATTEMPTS
def accounting(target: Any) -> Any:
    return system_call("acct", None) == 0


@ATTEMPTS
def swap(target: Any) -> Any:
    import ctypes

    return system_call("swapon", ctypes.create_string_buffer(b"/"), 0) == 0


@ATTEMPTS
def another_kernel(target: Any) -> Any:
    return system_call("kexec_load", 0, 0, None, 0) == 0


@ATTEMPTS
def who_it_is(target: Any) -> Any:
    import errno
    import os

    before = os.getuid()
    try:
        os.setuid(1 if target.is_root else 0)
    except OSError as error:
        # In the process's own user namespace, the other user does not exist.
        if error.errno != errno.EINVAL:
            raise
    return os.getuid() != before


@ATTEMPTS
def its_privileges_by_a_program(target: Any) -> Any:
    """Check whether a setuid program could give the process privileges, or a root process has kept its privileges."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return fields["NoNewPrivs"].strip() != "1" or int(fields["CapEff"], 16)
