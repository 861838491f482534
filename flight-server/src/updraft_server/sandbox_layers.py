# SPDX-License-Identifier: Apache-2.0
"""Layers of the workers' sandbox: their names, what each needs of the kernel, and which are on."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

READ_ONLY_FILES = "read-only-files"
"""Layer that makes all files except a worker's own read-only, including their permissions and times."""
SHARED_MEMORY = "shared-memory"
"""Layer that gives each worker a directory of its own for shared memory."""
SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - it is meant
TERMINALS = "terminals"
"""Layer that gives each worker terminals of its own."""
TERMINALS_PATH = "/dev/pts"
SECCOMP, CAPABILITIES, HIDDEN_MEMORY = "seccomp", "capabilities", "hidden-memory"
LANDLOCK, LANDLOCK_SCOPES = "landlock", "landlock-scopes"
RESTRICTED = "restricted"
"""Layer of the profile that has neither network nor subprocesses."""

NEEDS: Mapping[str, str] = {
    READ_ONLY_FILES: "Linux 5.12, user namespaces for everybody or CAP_SYS_ADMIN, and session functions",
    SHARED_MEMORY: "Linux 5.2, user namespaces for everybody or CAP_SYS_ADMIN, and --shared-memory own or pool",
    TERMINALS: "Linux 5.2, and user namespaces for everybody or CAP_SYS_ADMIN",
    SECCOMP: "Linux 3.5 on x86_64, 3.19 on aarch64, built with CONFIG_SECCOMP_FILTER",
    CAPABILITIES: "any Linux, and a service whose user is root or was given no capabilities",
    HIDDEN_MEMORY: "any Linux",
    LANDLOCK: "Linux 5.19, built and started with Landlock",
    LANDLOCK_SCOPES: "Linux 6.12, built and started with Landlock",
    RESTRICTED: "what seccomp needs, and --profile restricted",
}
"""Requirements of each layer, in reporting order."""


class SandboxLayer(NamedTuple):
    """Layer as the workers' side found it at its start."""

    name: str
    lack: str = ""
    """Why the layer is off; empty if it is on."""

    @property
    def is_on(self) -> bool:
        """Whether every worker has this layer."""
        return not self.lack


def in_words(layers: Sequence[SandboxLayer]) -> str:
    """Return the names of the layers that are on, and the names of the layers that are off."""
    on = ", ".join(layer.name for layer in layers if layer.is_on) or "none"
    off = ", ".join(layer.name for layer in layers if not layer.is_on)
    return f"{on}; off: {off}" if off else on
