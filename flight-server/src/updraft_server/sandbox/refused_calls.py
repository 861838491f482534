# SPDX-License-Identifier: Apache-2.0
"""The system calls that workers are refused, and all that functions start, with the reason for each group.

What honest functions need stays: processes and threads of their own and signals to them, sockets to anywhere, shared
memory and semaphores in /dev/shm (where `shared_mappings` lets `mmap.mmap` take it), one's own priority and limits.
EPERM is the kernel's own answer to a process without privileges; ENOSYS stands where libraries try an older call then,
EINVAL where they copy instead, and EAFNOSUPPORT where they do without a socket.

What a filter cannot do: it sees the number of a process, not whose process that is. Signals are refused to the
processes of the pool that are known when a worker is forked. A process of the same user that is not among them can be
signalled, so can a pool's front by the number of one of its threads, and other workers. Those are for Landlock's
scopes (Linux 6.12), or for containers of their own. Threads cannot be told from strangers either, so that one's own
processor affinity and scheduling can be set with the number 0 or the worker's own only.
"""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator

from updraft_server.linux.seccomp import Refused, Rule, differs, equals, has_any_bit, is_pointer, lacks_bits

OWN_PID, FRONT_PID, ZYGOTE_PID, SUPERVISOR_PID, POOL_GROUP = "own_pid", "front_pid", "zygote_pid", "supervisor", "group"
"""What `updraft_server.linux.seccomp.Filter.filled` has to be given; the group as `kill` names it, less than zero."""

_ALWAYS = {
    # Other processes' memory and descriptors, whatever their own protection is worth.
    "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp": errno.EPERM,
    # What the mount table of a container hides. Handles open files by their number, past all directories.
    "mount umount2 pivot_root chroot open_by_handle_at quotactl quotactl_fd acct swapon swapoff": errno.EPERM,
    "open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr": errno.EPERM,
    # Another process's namespaces. New ones are below.
    "setns": errno.EPERM,
    # Parts of the kernel with a history of holes, which no function needs: programs in the kernel, page faults handled
    # in user space, and calls made past this filter.
    "bpf perf_event_open userfaultfd": errno.EPERM,
    "io_uring_setup io_uring_enter io_uring_register": errno.ENOSYS,
    # Keys belong to the user: one function's Kerberos ticket would be the next one's.
    "add_key request_key keyctl": errno.EPERM,
    # Files in memory that have no name: what is written to them counts in no process until it is mapped. Shared memory
    # has names in /dev/shm.
    "memfd_create memfd_secret": errno.ENOSYS,
    # Pages that pipes and sockets hold without a copy: they count in no process once it has unmapped or truncated what
    # they come from, and one byte of a huge page keeps all of it. Libraries copy instead when they read EINVAL.
    "sendfile splice tee vmsplice": errno.EINVAL,
    # What happens to files of others, their names included: Landlock does not cover it.
    "inotify_init inotify_init1 fanotify_init": errno.ENOSYS,
    # Notes on files of others, and rights to them, neither of which Landlock covers. Copying a file goes on without.
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat": errno.ENOTSUP,
    "file_setattr": errno.ENOTSUP,
    # Named by numbers that all containers of a pod can guess, and left behind by whoever made them.
    "shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink": errno.EPERM,
    # The machine's: modules, boot, clock, names, ports, terminal and log.
    "init_module finit_module delete_module kexec_load kexec_file_load reboot": errno.EPERM,
    "settimeofday clock_settime sethostname setdomainname iopl ioperm vhangup syslog": errno.EPERM,
    # A pidfd does not show a filter whose it is. What knows it also knows the older call.
    "pidfd_send_signal": errno.ENOSYS,
    # Its flags lie in memory, where a filter cannot look: the C library then falls back to clone.
    "clone3": errno.ENOSYS,
}

# CLONE_NEW*. clone has a signal where unshare has CLONE_NEWTIME. A child with CLONE_PARENT would be the zygote's.
_NAMESPACES, _TIME_NAMESPACE, _CLONE_PARENT = 0x7E020000, 0x80, 0x8000

_PRIO_PROCESS, _PRIO_PROCESS_GROUP = 0, 1
_IOPRIO_PROCESS, _IOPRIO_PROCESS_GROUP = 1, 2

# As the container runtimes' default profiles have it: Linux's own personality, 32 bits, and the question for it.
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_F_SETOWN, _F_SETOWN_EX = fcntl.F_SETOWN, 15
_F_SETLEASE, _F_NOTIFY, _F_SETDELEG = fcntl.F_SETLEASE, fcntl.F_NOTIFY, 1040
# FIOSETOWN and SIOCSPGRP; TIOCSTI and TIOCLINUX type into a terminal.
_OWNING_IOCTLS, _TYPING_IOCTLS = (0x8901, 0x8902), (0x5412, 0x541C)

# FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION, ext4's own of the last, FS_IOC_ENABLE_VERITY and
# FS_IOC_SET_ENCRYPTION_POLICY; of the first and third what programs of 32 bits call too.
_FILE_IOCTLS = (
    *(0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40047602, 0x40086604),
    *(0x40806685, 0x800C6613),
)
# ioctls of btrfs change and remove subvolumes through a read-only directory. FICLONE, FICLONERANGE and FIDEDUPERANGE,
# which copy files, have numbers of the same kind.
_BTRFS_IOCTLS, _IOCTL_KIND, _COPYING_IOCTLS = 0x9400, 0xFF00, (0x40049409, 0x4020940D, 0xC0189436)
# TIOCGPTN, TIOCSPTLCK and TIOCGPTPEER: the way from /dev/ptmx to the terminal that it has made.
_NEW_TERMINAL_IOCTLS = (0x80045430, 0x40045431, 0x5441)

_SOCKET_TYPE = 0xF
_SOCK_PACKET = 10
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_FAMILIES = (socket.AF_UNIX, *_INTERNET, socket.AF_NETLINK)
_NETLINK_ROUTE = 0

_SO_ZEROCOPY = 60
# The call does nothing and says that it did.
_IGNORED = 0

_CLONE_THREAD = 0x10000

_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20


def refused_calls() -> Iterator[Rule]:
    """The rules of every worker's filter."""
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
    """Shared memory that has no file: what a process no longer maps of it stays, and counts nowhere.

    MAP_SHARED_VALIDATE has the bit of MAP_SHARED, and no other type of mapping has. The answer is not ENOMEM, which
    would send whoever reads it looking for memory.
    """
    unnamed = _MAP_SHARED | _MAP_ANONYMOUS
    yield Rule("mmap", errno.EPERM, [equals(3, unnamed, mask=unnamed)])


def new_terminals() -> Iterator[Rule]:
    """Return the rules of workers that have no terminals of their own.

    They refuse a new terminal's number, lock and other end. Landlock refuses /dev/ptmx itself, which takes one of the
    machine's terminals as soon as it is opened.
    """
    for number in _NEW_TERMINAL_IOCTLS:
        yield Rule("ioctl", errno.EPERM, [equals(1, number)])


def restricted_calls() -> Iterator[Rule]:
    """What the profile `restricted` refuses beside these: sockets to anybody, processes and programs.

    Threads stay, and pairs of connected sockets, of which event loops are made. A pair of datagram sockets does not:
    one can send to any address.
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
        # Without one the call only asks.
        yield Rule("prlimit64", errno.EPERM, [*_not_own(0), *new_limit])
    for call, kinds in (
        ("setpriority", (_PRIO_PROCESS, _PRIO_PROCESS_GROUP)),
        ("ioprio_set", (_IOPRIO_PROCESS, _IOPRIO_PROCESS_GROUP)),
    ):
        # Not those of a user, who has all workers.
        yield Rule(call, errno.EPERM, [differs(0, kind) for kind in kinds])
        yield Rule(call, errno.EPERM, _not_own(1))


def _signals_to_the_pool() -> Iterator[Rule]:
    known = (1, FRONT_PID, ZYGOTE_PID, SUPERVISOR_PID)
    for call in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        for pid in known:
            yield Rule(call, errno.EPERM, [equals(0, pid)])
    # -1 is every process that may be signalled.
    for several in (-1, POOL_GROUP):
        yield Rule("kill", errno.EPERM, [equals(0, several)])
    # Readiness of a descriptor can be a signal too, to whom the descriptor's owner chooses.
    for pid in (*known, POOL_GROUP):
        yield Rule("fcntl", errno.EPERM, [equals(1, _F_SETOWN), equals(2, pid)])
    yield Rule("fcntl", errno.EPERM, [equals(1, _F_SETOWN_EX)])
    for number in _OWNING_IOCTLS:
        yield Rule("ioctl", errno.EPERM, [equals(1, number)])


def _own_protection() -> Iterator[Rule]:
    """A worker stays hidden, and the parent of daemons that its functions start."""
    yield Rule("prctl", errno.EPERM, [equals(0, _PR_SET_DUMPABLE), differs(1, 0)])
    yield Rule("prctl", errno.EPERM, [equals(0, _PR_SET_CHILD_SUBREAPER), equals(1, 0)])
    for number in _TYPING_IOCTLS:
        yield Rule("ioctl", errno.EPERM, [equals(1, number)])


def _claims_on_files() -> Iterator[Rule]:
    """A lease makes everybody else wait, for 45 seconds each time, to open a file that can only be read here."""
    for command in (_F_SETLEASE, _F_NOTIFY, _F_SETDELEG):
        yield Rule("fcntl", errno.EPERM, [equals(1, command)])


def _attributes_of_files() -> Iterator[Rule]:
    """Return the rules for flags and the like, which a file's user may change by a descriptor that only reads."""
    for number in _FILE_IOCTLS:
        yield Rule("ioctl", errno.EPERM, [equals(1, number)])
    copying = [differs(1, number) for number in _COPYING_IOCTLS]
    yield Rule("ioctl", errno.EPERM, [equals(1, _BTRFS_IOCTLS, mask=_IOCTL_KIND), *copying])


def _sockets() -> Iterator[Rule]:
    """Raw packets, and the families beside Unix and the internet.

    Routing stays: there the C library reads this machine's addresses.
    """
    for call in ("socket", "socketpair"):
        yield Rule(call, errno.EAFNOSUPPORT, [differs(0, family) for family in _FAMILIES])
    yield Rule("socket", errno.EPROTONOSUPPORT, [equals(0, socket.AF_NETLINK), differs(2, _NETLINK_ROUTE)])
    for family in _INTERNET:
        for kind in (socket.SOCK_RAW, _SOCK_PACKET):
            yield Rule("socket", errno.EPERM, [equals(0, family), equals(1, kind, mask=_SOCKET_TYPE)])
    # What waits in a socket counts in no process either. The kernel too sets another size where one is too large.
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        yield Rule("setsockopt", _IGNORED, [equals(1, socket.SOL_SOCKET), equals(2, option)])
    # As `sendfile`: an unsent message would hold the sender's pages.
    yield Rule("setsockopt", errno.ENOPROTOOPT, [equals(1, socket.SOL_SOCKET), equals(2, _SO_ZEROCOPY)])


def _not_own(argument: int) -> Refused:
    return [differs(argument, 0), differs(argument, OWN_PID)]


def pool_processes() -> dict[str, int]:
    """What a zygote knows of the values that the rules name; the front's and the worker's number come with a fork."""
    return {ZYGOTE_PID: os.getpid(), SUPERVISOR_PID: os.getppid(), POOL_GROUP: -os.getpgrp()}
