# SPDX-License-Identifier: Apache-2.0
"""Attempts to change permissions, owners and times (not contents) of files that do not belong to the worker."""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts

ATTEMPTS = Attempts()


def same_rights(path: str) -> str:
    """Set a file's permissions to their current value. A process that may do so may also remove permissions."""
    import os
    import stat

    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))
    return f"the rights of {path}"


@ATTEMPTS
def rights_of_the_tokens_file(target: Any) -> Any:
    return same_rights(target.tokens)


@ATTEMPTS
def rights_of_the_tokens_file_by_another_root(target: Any) -> Any:
    import os

    return [same_rights(f"/proc/{pid}/root{target.tokens}") for pid in ("self", os.getpid(), target.front)]


@ATTEMPTS
def rights_of_the_tls_key(target: Any) -> Any:
    return same_rights(target.key)


@ATTEMPTS
def rights_of_what_the_pool_announces(target: Any) -> Any:
    return same_rights(target.ready_file)


@ATTEMPTS
def rights_of_the_audit_log(target: Any) -> Any:
    return same_rights(target.audit)


@ATTEMPTS
def rights_of_the_runtime_directory(target: Any) -> Any:
    return same_rights(target.runtime)


@ATTEMPTS
def rights_of_the_store_of_artifacts(target: Any) -> Any:
    return same_rights(target.artifacts)


@ATTEMPTS
def rights_of_an_artifact_of_its_own(target: Any) -> Any:
    return same_rights(target.own_artifact)


@ATTEMPTS
def rights_of_an_artifact_of_its_own_by_a_descriptor(target: Any) -> Any:
    import os

    with open(target.own_artifact, "rb") as file:
        os.fchmod(file.fileno(), 0o644)
    return "the rights of its artifact"


@ATTEMPTS
def flags_of_an_artifact_of_its_own(target: Any) -> Any:
    import fcntl
    import struct

    get_flags, set_flags = 0x80086601, 0x40086602
    with open(target.own_artifact, "rb") as file:
        flags = bytearray(8)
        fcntl.ioctl(file, get_flags, flags)
        fcntl.ioctl(file, set_flags, struct.pack("q", struct.unpack("q", flags)[0]))
    return "the flags of its artifact"


@ATTEMPTS
def rights_of_the_code_of_the_pool(target: Any) -> Any:
    import updraft_server.worker.process as module

    return same_rights(module.__file__)


@ATTEMPTS
def owner_of_the_tokens_file(target: Any) -> Any:
    import os

    os.chown(target.tokens, -1, os.getegid())
    return "given away"


@ATTEMPTS
def when_the_tokens_were_changed(target: Any) -> Any:
    import os

    # A service rereads the file if its modification time has changed.
    os.utime(target.tokens)
    return "now"


@ATTEMPTS
def rights_of_the_scratch_of_another(target: Any) -> Any:
    import os

    return same_rights(os.path.dirname(target.victims_file))
