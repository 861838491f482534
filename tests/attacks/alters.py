# SPDX-License-Identifier: Apache-2.0
"""Attempts to change what belongs to the pool, to another owner or to the machine."""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts, system_call

ATTEMPTS = Attempts()


def overwrite(path: str) -> str:
    """Add nothing to a file that has to be there, which shows that something could be added."""
    import os

    os.close(os.open(path, os.O_WRONLY))
    return "open for writing"


def make_in(directory: str) -> str:
    """Make a file, and remove it again."""
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
def rights_of_the_tokens_file(target: Any) -> Any:
    import os

    os.truncate(target.tokens, os.stat(target.tokens).st_size)
    return "truncated to its own length"


@ATTEMPTS
def code_of_the_pool(target: Any) -> Any:
    import updraft_server.worker.process as module

    return overwrite(module.__file__)


@ATTEMPTS
def code_beside_the_pool(target: Any) -> Any:
    import os

    import updraft_server

    return make_in(os.path.dirname(updraft_server.__file__))


@ATTEMPTS
def packages_that_every_process_imports(target: Any) -> Any:
    import os

    import pyarrow

    return make_in(os.path.dirname(os.path.dirname(pyarrow.__file__)))


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
def the_socket_of_the_zygote(target: Any) -> Any:
    import os

    path = os.path.join(target.runtime, "zygote.sock")
    os.rename(path, path)
    os.link(path, path + ".old")
    os.unlink(path + ".old")
    return "could be renamed"


@ATTEMPTS
def the_records_of_workers(target: Any) -> Any:
    import os

    return [make_in(os.path.join(target.runtime, name)) for name in ("workers",)]


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

    # The next exchange of the application reads it, and perhaps another worker now.
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
    import re

    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    # The page is the same in every fork, and gets its own contents back.
    with open("/proc/self/maps") as maps:
        begin = next(int(re.split("[- ]", line)[0], 16) for line in maps if " rw-p" in line)
    here = ctypes.string_at(begin, 8)
    buffer = ctypes.create_string_buffer(here, 8)
    local, remote = Vector(ctypes.addressof(buffer), 8), Vector(begin, 8)
    return system_call("process_vm_writev", target.victim, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)


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


@ATTEMPTS
def the_priority_of_the_front(target: Any) -> Any:
    import os

    os.setpriority(os.PRIO_PROCESS, target.front, os.getpriority(os.PRIO_PROCESS, target.front))
    return "could be slowed down"


@ATTEMPTS
def the_priority_of_a_neighbour(target: Any) -> Any:
    import os

    os.setpriority(os.PRIO_PROCESS, target.victim, os.getpriority(os.PRIO_PROCESS, target.victim))
    return "could be slowed down"


@ATTEMPTS
def the_priority_of_everybody(target: Any) -> Any:
    import os

    os.setpriority(os.PRIO_USER, os.getuid(), os.getpriority(os.PRIO_USER, os.getuid()))
    return "all could be slowed down"


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


@ATTEMPTS
def the_limits_of_the_front(target: Any) -> Any:
    import resource

    resource.prlimit(target.front, resource.RLIMIT_NOFILE, resource.prlimit(target.front, resource.RLIMIT_NOFILE))
    return "limits set"


@ATTEMPTS
def the_limits_of_a_neighbour(target: Any) -> Any:
    import resource

    limits = resource.prlimit(target.victim, resource.RLIMIT_CPU)
    resource.prlimit(target.victim, resource.RLIMIT_CPU, limits)
    return "limits set"


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
    import os

    os.setuid(1 if target.is_root else 0)
    return os.getuid()


@ATTEMPTS
def its_privileges_by_a_program(target: Any) -> Any:
    """A setuid program would have them; whoever is root already has lost them."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return fields["NoNewPrivs"].strip() != "1" or int(fields["CapEff"], 16)
