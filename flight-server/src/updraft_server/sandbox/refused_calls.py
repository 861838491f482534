# SPDX-License-Identifier: Apache-2.0
"""System calls that the kernel refuses to workers and everything that functions start, with the reason for each group.

Functions can still start processes and threads and signal them, open sockets to anywhere, use shared memory and
semaphores in /dev/shm (`shared_mappings` makes `mmap.mmap` use it), and change their own priority and limits. A refused
call fails with EPERM, as the kernel's own checks do, unless another error helps libraries: ENOSYS makes them try an
older call, EINVAL makes them copy instead, and EAFNOSUPPORT makes them do without a socket.

The pool limits a worker's memory by counting the memory of the worker's processes. Some rules refuse calls that would
create memory or buffers that no process's count includes.

A filter sees a process id, but not whose process has that id. So the filter refuses signals to those processes of the
pool whose ids are known when a worker is forked. A worker could still signal other workers, other processes of the same
user, and the pool's front through the id of one of the front's threads. Landlock's scopes (Linux 6.12) or separate
containers prevent these signals. A filter cannot tell a worker's own threads from other threads either. So a worker can
set processor affinity and scheduling only for its own process id or for 0, the calling thread.
"""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator

from updraft_server.linux.seccomp import Refused, Rule, differs, equals, has_any_bit, is_pointer, lacks_bits

OWN_PID, FRONT_PID, ZYGOTE_PID, SUPERVISOR_PID, POOL_GROUP = "own_pid", "front_pid", "zygote_pid", "supervisor", "group"
"""Names of values for `updraft_server.linux.seccomp.Filter.filled`; the group's value is negative, as in `kill`."""

_ALWAYS = {
    # These calls reach memory and descriptors of other processes. Not all of those processes protect themselves.
    "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp": errno.EPERM,
    # These calls reach files that a container's mount table hides. open_by_handle_at opens a file by its number, in any
    # directory.
    "mount umount2 pivot_root chroot open_by_handle_at quotactl quotactl_fd acct swapon swapoff": errno.EPERM,
    "open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr": errno.EPERM,
    # This call enters the namespace of another process. `_new_namespaces` refuses to make new namespaces.
    "setns": errno.EPERM,
    # Functions do not need these parts of the kernel, which have a history of security holes: programs in the kernel,
    # performance events, page faults handled in user space, and calls that bypass this filter (io_uring).
    "bpf perf_event_open userfaultfd": errno.EPERM,
    "io_uring_setup io_uring_enter io_uring_register": errno.ENOSYS,
    # Keys belong to the user, so the next function could use this function's Kerberos ticket.
    "add_key request_key keyctl": errno.EPERM,
    # These calls make files in memory that have no name. Data in such a file is counted for no process until a process
    # maps the file. Functions can share memory through named files in /dev/shm instead.
    "memfd_create memfd_secret": errno.ENOSYS,
    # These calls let pipes and sockets hold a process's pages without a copy. Once the process unmaps the memory or
    # truncates the file, these pages are counted for no process, and a pipe that holds one byte of a huge page keeps
    # the whole page allocated. Libraries that receive EINVAL copy instead.
    "sendfile splice tee vmsplice": errno.EINVAL,
    # These calls report events of other users' files, including the files' names. Landlock does not cover them.
    "inotify_init inotify_init1 fanotify_init": errno.ENOSYS,
    # These calls change extended attributes and rights of other users' files. Landlock does not cover them, and
    # copying a file works without them.
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat": errno.ENOTSUP,
    "file_setattr": errno.ENOTSUP,
    # These objects have numbers that all containers of a pod can guess, and they outlive the process that makes them.
    "shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink": errno.EPERM,
    # These calls change the whole machine: modules, boot, clock, names, ports, terminal and log.
    "init_module finit_module delete_module kexec_load kexec_file_load reboot": errno.EPERM,
    "settimeofday clock_settime sethostname setdomainname iopl ioperm vhangup syslog": errno.EPERM,
    # A filter cannot see to which process a pidfd refers. Programs that know this call also know the older `kill`.
    "pidfd_send_signal": errno.ENOSYS,
    # The flags of clone3 are in memory, which a filter cannot read. After ENOSYS the C library falls back to clone.
    "clone3": errno.ENOSYS,
}

# CLONE_NEW* flags. In unshare, 0x80 is CLONE_NEWTIME; in clone, this bit is part of a signal number. With CLONE_PARENT,
# a worker's clone would make a child of the zygote.
_NAMESPACES, _TIME_NAMESPACE, _CLONE_PARENT = 0x7E020000, 0x80, 0x8000

_PRIO_PROCESS, _PRIO_PROCESS_GROUP = 0, 1
_IOPRIO_PROCESS, _IOPRIO_PROCESS_GROUP = 1, 2

# Values that container runtimes allow by default: Linux's own personality, 32-bit Linux, both with a version number
# like 2.6, and the query of the current value.
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_F_SETOWN, _F_SETOWN_EX = fcntl.F_SETOWN, 15
_F_SETLEASE, _F_NOTIFY, _F_SETDELEG = fcntl.F_SETLEASE, fcntl.F_NOTIFY, 1040
# FIOSETOWN and SIOCSPGRP choose the process that receives signals. TIOCSTI and TIOCLINUX type into a terminal.
_OWNING_IOCTLS, _TYPING_IOCTLS = (0x8901, 0x8902), (0x5412, 0x541C)

# FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION, ext4's variant of FS_IOC_SETVERSION, FS_IOC_ENABLE_VERITY and
# FS_IOC_SET_ENCRYPTION_POLICY. FS_IOC_SETFLAGS and FS_IOC_SETVERSION have another number in 32-bit programs.
_FILE_IOCTLS = (
    *(0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40047602, 0x40086604),
    *(0x40806685, 0x800C6613),
)
# ioctls of btrfs can change and remove subvolumes through a directory that is open for reading. FICLONE, FICLONERANGE
# and FIDEDUPERANGE have numbers of the same kind, but stay allowed, because they only copy files.
_BTRFS_IOCTLS, _IOCTL_KIND, _COPYING_IOCTLS = 0x9400, 0xFF00, (0x40049409, 0x4020940D, 0xC0189436)
# TIOCGPTN, TIOCSPTLCK and TIOCGPTPEER. A program that has opened /dev/ptmx needs these to use the new terminal.
_NEW_TERMINAL_IOCTLS = (0x80045430, 0x40045431, 0x5441)

_SOCKET_TYPE = 0xF
_SOCK_PACKET = 10
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_FAMILIES = (socket.AF_UNIX, *_INTERNET, socket.AF_NETLINK)
_NETLINK_ROUTE = 0

_SO_ZEROCOPY = 60
# Error 0: the call does nothing and reports success.
_IGNORED = 0

_CLONE_THREAD = 0x10000

_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20


def refused_calls() -> Iterator[Rule]:
    """Yield the rules of every worker's filter."""
    for calls, error in _ALWAYS.items():
        yield from (Rule(call, error) for call in calls.split())
    yield from _new_namespaces()
    yield from _others_priorities_and_limits()
    yield from _signals_to_the_pool()
    yield from _own_protection()
    yield from _claims_on_files()
    yield from _attributes_of_files()
    yield from _sockets()


def shared_mappings() -> Iterator[Rule]:
    """Refuse shared memory without a file. Once unmapped, such memory may still exist, but is counted for no process.

    The rule also covers MAP_SHARED_VALIDATE, which includes the bit of MAP_SHARED. The error is not ENOMEM, because
    ENOMEM would suggest a lack of memory.
    """
    unnamed = _MAP_SHARED | _MAP_ANONYMOUS
    yield Rule("mmap", errno.EPERM, [equals(3, unnamed, mask=unnamed)])


def new_terminals() -> Iterator[Rule]:
    """Yield the rules of workers that have no terminals of their own.

    The rules refuse the calls for a new terminal's number, lock and other end. In addition, Landlock refuses /dev/ptmx,
    because opening /dev/ptmx already allocates one of the machine's terminals.
    """
    for number in _NEW_TERMINAL_IOCTLS:
        yield Rule("ioctl", errno.EPERM, [equals(1, number)])


def restricted_calls() -> Iterator[Rule]:
    """Yield the rules that the profile `restricted` adds: no sockets to other processes, no new processes or programs.

    Threads stay allowed, and so do pairs of connected sockets, which event loops use. Pairs of datagram sockets are
    refused, because a datagram socket can send to any address.
    """
    for call in ("socket", "connect", "bind", "listen", "accept", "accept4"):
        yield Rule(call, errno.EPERM)
    yield Rule("socketpair", errno.EPERM, [equals(1, socket.SOCK_DGRAM, mask=_SOCKET_TYPE)])
    for call in ("fork", "vfork", "execve", "execveat"):
        yield Rule(call, errno.EPERM)
    yield Rule("clone", errno.EPERM, [lacks_bits(0, _CLONE_THREAD)])


def _new_namespaces() -> Iterator[Rule]:
    yield Rule("clone", errno.EPERM, [has_any_bit(0, _NAMESPACES | _CLONE_PARENT)])
    yield Rule("unshare", errno.EPERM, [has_any_bit(0, _NAMESPACES | _TIME_NAMESPACE)])
    yield Rule("personality", errno.EPERM, [differs(0, known) for known in _PERSONALITIES])


def _others_priorities_and_limits() -> Iterator[Rule]:
    scheduling = "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler", "migrate_pages"
    for call in (*scheduling, "move_pages"):
        yield Rule(call, errno.EPERM, _not_own(0))
    for new_limit in is_pointer(2):
        # Without a pointer to a new limit, the call only reads the current limit.
        yield Rule("prlimit64", errno.EPERM, [*_not_own(0), *new_limit])
    for call, kinds in (
        ("setpriority", (_PRIO_PROCESS, _PRIO_PROCESS_GROUP)),
        ("ioprio_set", (_IOPRIO_PROCESS, _IOPRIO_PROCESS_GROUP)),
    ):
        # Calls for all processes of a user are refused, because all workers run as the same user.
        yield Rule(call, errno.EPERM, [differs(0, kind) for kind in kinds])
        yield Rule(call, errno.EPERM, _not_own(1))


def _signals_to_the_pool() -> Iterator[Rule]:
    known = (1, FRONT_PID, ZYGOTE_PID, SUPERVISOR_PID)
    for call in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        for pid in known:
            yield Rule(call, errno.EPERM, [equals(0, pid)])
    # -1 means every process that the caller may signal.
    for several in (-1, POOL_GROUP):
        yield Rule("kill", errno.EPERM, [equals(0, several)])
    # A process can also choose another process that the kernel signals when a descriptor becomes ready.
    for pid in (*known, POOL_GROUP):
        yield Rule("fcntl", errno.EPERM, [equals(1, _F_SETOWN), equals(2, pid)])
    yield Rule("fcntl", errno.EPERM, [equals(1, _F_SETOWN_EX)])
    for number in _OWNING_IOCTLS:
        yield Rule("ioctl", errno.EPERM, [equals(1, number)])


def _own_protection() -> Iterator[Rule]:
    """Keep a worker's memory hidden, keep daemons of its functions its children, and refuse typing into terminals."""
    yield Rule("prctl", errno.EPERM, [equals(0, _PR_SET_DUMPABLE), differs(1, 0)])
    yield Rule("prctl", errno.EPERM, [equals(0, _PR_SET_CHILD_SUBREAPER), equals(1, 0)])
    for number in _TYPING_IOCTLS:
        yield Rule("ioctl", errno.EPERM, [equals(1, number)])


def _claims_on_files() -> Iterator[Rule]:
    """Refuse leases and notifications. A lease needs only read access, and makes other openers wait for 45 seconds."""
    for command in (_F_SETLEASE, _F_NOTIFY, _F_SETDELEG):
        yield Rule("fcntl", errno.EPERM, [equals(1, command)])


def _attributes_of_files() -> Iterator[Rule]:
    """Refuse changes to file flags and the like, which a file's owner may make through a read-only descriptor."""
    for number in _FILE_IOCTLS:
        yield Rule("ioctl", errno.EPERM, [equals(1, number)])
    copying = [differs(1, number) for number in _COPYING_IOCTLS]
    yield Rule("ioctl", errno.EPERM, [equals(1, _BTRFS_IOCTLS, mask=_IOCTL_KIND), *copying])


def _sockets() -> Iterator[Rule]:
    """Refuse raw packets, and socket families other than Unix and the internet.

    Netlink's routing protocol stays allowed, because the C library reads this machine's addresses through it.
    """
    for call in ("socket", "socketpair"):
        yield Rule(call, errno.EAFNOSUPPORT, [differs(0, family) for family in _FAMILIES])
    yield Rule("socket", errno.EPROTONOSUPPORT, [equals(0, socket.AF_NETLINK), differs(2, _NETLINK_ROUTE)])
    for family in _INTERNET:
        for kind in (socket.SOCK_RAW, _SOCK_PACKET):
            yield Rule("socket", errno.EPERM, [equals(0, family), equals(1, kind, mask=_SOCKET_TYPE)])
    # Data that waits in a socket is counted for no process, so functions cannot enlarge a socket's buffers. Ignoring
    # the call is safe: the kernel also silently sets another size if the requested size is too large.
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        yield Rule("setsockopt", _IGNORED, [equals(1, socket.SOL_SOCKET), equals(2, option)])
    # Refused for the same reason as `sendfile`: an unsent message would hold the sender's pages.
    yield Rule("setsockopt", errno.ENOPROTOOPT, [equals(1, socket.SOL_SOCKET), equals(2, _SO_ZEROCOPY)])


def _not_own(argument: int) -> Refused:
    return [differs(argument, 0), differs(argument, OWN_PID)]


def pool_processes() -> dict[str, int]:
    """Return the zygote's values for the rules. The ids of front and worker are filled in after each fork."""
    return {ZYGOTE_PID: os.getpid(), SUPERVISOR_PID: os.getppid(), POOL_GROUP: -os.getpgrp()}
