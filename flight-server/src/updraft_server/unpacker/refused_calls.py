# SPDX-License-Identifier: Apache-2.0
"""System calls that the kernel refuses to an unpacker: all that reach beyond its archive and its directory.

Landlock, if there is one, decides which files it opens. Landlock does not cover signals (before version 6), sockets
other than TCP, and owners of files: without these rules, an archive that took over an unpacker could kill the front by
its process id. Opening archives needs nothing of what functions need, so hardly any rule looks at an argument.
"""

import errno
import fcntl
import os
from collections.abc import Iterator

from updraft_server.linux import seccomp
from updraft_server.linux.seccomp import Rule, equals, is_pointer
from updraft_server.linux.system_calls import ARCHITECTURES

_IGNORED = 0

_ALWAYS = {
    # Other processes: their memory, their descriptors and their priorities.
    "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_getfd pidfd_send_signal": errno.EPERM,
    "ptrace process_vm_readv process_vm_writev process_madvise kcmp": errno.EPERM,
    "setpriority ioprio_set sched_setaffinity sched_setattr sched_setparam sched_setscheduler": errno.EPERM,
    "migrate_pages move_pages": errno.EPERM,
    # It stays one thread of one program to its end.
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
    # Attributes of files: owners (the library sets them as they are; the call does nothing and reports success),
    # extended attributes and watches.
    "chown lchown fchown fchownat": _IGNORED,
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat": errno.EPERM,
    "inotify_init inotify_init1 fanotify_init": errno.ENOSYS,
}

# A descriptor can report readiness by a signal, to a process that its owner chooses.
_F_SETOWN_EX = 15
_OWNING_IOCTLS = (0x8901, 0x8902)


def refuse_calls() -> bool:
    """Refuse these calls to this process for good; returns False if this machine's call numbers are unknown.

    Raises OSError. The process must have given up new privileges, and must have set its own limits: it can set none
    afterwards.
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
