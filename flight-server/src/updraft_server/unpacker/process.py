# SPDX-License-Identifier: Apache-2.0
"""Program of an unpacker: gives up its rights, unpacks standard input into its working directory, reports the outcome.

It starts with an empty environment and two descriptors: standard input is the archive, and standard output is the
socket to the front.

A filter refuses all system calls that reach beyond the archive and the directory. Landlock, if the kernel supports it,
limits the files that the unpacker can open, but does not cover signals (before version 6), sockets other than TCP, and
owners of files. Without the filter, an archive that took over an unpacker could, for example, kill the front.
Unpacking needs none of the refused calls, so hardly any rule examines an argument.
"""

import contextlib
import errno
import fcntl
import os
import resource
import sys
from collections.abc import Iterator

from updraft_server.ipc.unpacking import ROOM_GRANTED, RoomRequest, UnpackBounds, UnpackOutcome, UnpackVerdict
from updraft_server.linux import seccomp
from updraft_server.linux.capabilities import DAC_READ_SEARCH, give_up_capabilities
from updraft_server.linux.landlock import confine_files
from updraft_server.linux.out_of_memory import die_first
from updraft_server.linux.process_control import end_with_parent, forbid_new_privileges, hide_memory
from updraft_server.linux.seccomp import Rule, equals, is_pointer
from updraft_server.linux.system_calls import ARCHITECTURES
from updraft_server.unpacker.archive import RefusedArchiveError, unpack

_IGNORED = 0

_ALWAYS = {
    # Other processes: their memory, their descriptors and their priorities.
    "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_getfd pidfd_send_signal": errno.EPERM,
    "ptrace process_vm_readv process_vm_writev process_madvise kcmp": errno.EPERM,
    "setpriority ioprio_set sched_setaffinity sched_setattr sched_setparam sched_setscheduler": errno.EPERM,
    "migrate_pages move_pages": errno.EPERM,
    # An unpacker stays one thread of one program until it ends.
    "fork vfork clone execve execveat": errno.EPERM,
    "clone3": errno.ENOSYS,
    # Communication with other processes.
    "socket socketpair connect bind listen accept accept4": errno.EPERM,
    "shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink": errno.EPERM,
    "add_key request_key keyctl": errno.EPERM,
    # The machine.
    "mount umount2 pivot_root chroot open_by_handle_at quotactl quotactl_fd acct swapon swapoff": errno.EPERM,
    "open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr": errno.EPERM,
    "setns unshare personality": errno.EPERM,
    "bpf perf_event_open userfaultfd": errno.EPERM,
    "io_uring_setup io_uring_enter io_uring_register memfd_create memfd_secret": errno.ENOSYS,
    "init_module finit_module delete_module kexec_load kexec_file_load reboot": errno.EPERM,
    "settimeofday clock_settime sethostname setdomainname iopl ioperm vhangup syslog": errno.EPERM,
    # These calls change owners and extended attributes of files, and watch files. The library sets each file's owner to
    # the user who owns the file already, so a call that changes an owner does nothing and reports success.
    "chown lchown fchown fchownat": _IGNORED,
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat": errno.EPERM,
    "inotify_init inotify_init1 fanotify_init": errno.ENOSYS,
}

# Calls that choose a process, which the kernel then signals when a descriptor becomes ready.
_F_SETOWN_EX = 15
_OWNING_IOCTLS = (0x8901, 0x8902)


def refuse_calls() -> bool:
    """Refuse the calls to this process for good; returns False if this machine's call numbers are unknown.

    Raises OSError. The process must have called `forbid_new_privileges` before. It must also have set its own limits,
    because it cannot set limits afterwards.
    """
    if os.uname().machine not in ARCHITECTURES:
        return False
    seccomp.install(seccomp.Filter(_refused_calls()).filled())
    return True


def _refused_calls() -> Iterator[Rule]:
    for calls, error in _ALWAYS.items():
        yield from (Rule(call, error) for call in calls.split())
    yield Rule("setrlimit", errno.EPERM)
    for new_limit in is_pointer(2):
        yield Rule("prlimit64", errno.EPERM, new_limit)
    for command in (fcntl.F_SETOWN, _F_SETOWN_EX):
        yield Rule("fcntl", errno.EPERM, [equals(1, command)])
    for number in _OWNING_IOCTLS:
        yield Rule("ioctl", errno.EPERM, [equals(1, number)])


_MAX_DESCRIPTORS = 32


def main() -> None:
    """Run with the bounds and the process id of the front as arguments."""
    bounds, front = UnpackBounds.decode(sys.argv[1]), int(sys.argv[2])
    end_with_parent()
    if os.getppid() != front:
        sys.exit("the front is gone")
    _give_up(bounds)
    sys.stdout.buffer.write(_verdict(bounds).encode())
    sys.stdout.buffer.flush()


def _give_up(bounds: UnpackBounds) -> None:
    """Give up rights for good, before the first byte of the archive is read."""
    die_first()
    hide_memory()
    forbid_new_privileges()
    # The unpacker still reads Python's library, which may belong to another user.
    give_up_capabilities(but=DAC_READ_SEARCH)
    for kind, limit in (
        (resource.RLIMIT_AS, bounds.memory_bytes),
        (resource.RLIMIT_DATA, bounds.memory_bytes),
        (resource.RLIMIT_FSIZE, bounds.total_bytes),
        (resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (allowed, allowed))
    # The kernel sends SIGXCPU at the lower of these two limits. The signal shows that the CPU limit ended the process.
    resource.setrlimit(resource.RLIMIT_CPU, (bounds.cpu_seconds, bounds.cpu_seconds + 1))
    # The directory of Python's standard library must stay readable, because the library sometimes imports a codec.
    confine_files(readable=(os.path.dirname(os.__file__),), writable=(".",))
    with contextlib.suppress(OSError):
        # Some kernels and some container sandboxes do not support filters.
        refuse_calls()


def _verdict(bounds: UnpackBounds) -> UnpackVerdict:
    try:
        unpack(sys.stdin.buffer, ".", bounds, _ask_for_room)
    except RefusedArchiveError as error:
        return UnpackVerdict(UnpackOutcome.REFUSED, str(error))
    except OSError as error:
        return UnpackVerdict(UnpackOutcome.FAULT, error_number=error.errno or 0)
    return UnpackVerdict(UnpackOutcome.UNPACKED)


def _ask_for_room(room_bytes: int) -> None:
    os.write(sys.stdout.fileno(), RoomRequest(room_bytes).encode())
    if os.read(sys.stdout.fileno(), len(ROOM_GRANTED)) != ROOM_GRANTED:
        sys.exit("the front is gone")
