# SPDX-License-Identifier: Apache-2.0
"""Files of an image, found in a pod that runs it."""

from __future__ import annotations

from itertools import chain
from typing import Any

from tests.kube.namespace import NAMESPACE, Namespace
from tests.support.waiting import until

_POD = "finds-files"
_ENDED = ("Succeeded", "Failed")
_SECONDS = 180


def files_named(namespace: Namespace, image: str, *patterns: str) -> list[str]:
    """Return the sorted paths of files and links whose names match one of the patterns; directories are left out."""
    names = chain.from_iterable(("-o", "-name", pattern) for pattern in patterns)
    find = ["find", "/", "-xdev", "-not", "-type", "d", "(", "-false", *names, ")"]
    core = namespace.core
    core.create_namespaced_pod(NAMESPACE, {"metadata": {"name": _POD}, "spec": _spec(image, find)})
    try:
        until("the pod has ended", lambda: _phase(namespace) in _ENDED, timeout_seconds=_SECONDS)
        printed = str(core.read_namespaced_pod_log(_POD, NAMESPACE))
    finally:
        core.delete_namespaced_pod(_POD, NAMESPACE, grace_period_seconds=0)
    # Other lines are errors about directories that only root may read, and start with the program's name.
    return sorted(line for line in printed.splitlines() if line.startswith("/"))


def _phase(namespace: Namespace) -> str:
    return str(namespace.core.read_namespaced_pod(_POD, NAMESPACE).status.phase)


def _spec(image: str, command: list[str]) -> dict[str, Any]:
    container = {
        "name": "find",
        "image": image,
        "command": command,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    user = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    return {"restartPolicy": "Never", "securityContext": user, "containers": [container]}
