# SPDX-License-Identifier: Apache-2.0
"""Trial that finds out which layers are available."""

import errno
import os
from types import SimpleNamespace

import pytest

from updraft_server.linux import seccomp
from updraft_server.sandbox import worker_sandbox
from updraft_server.sandbox.owner_files import SharedMemoryUse
from updraft_server.sandbox.refused_calls import refused_calls
from updraft_server.sandbox.worker_sandbox import WorkerSandbox
from updraft_server.sandbox_layers import NEEDS, SECCOMP, SHARED_MEMORY, SandboxLayer, in_words


def machine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=name))


def test_an_architecture_that_nobody_knows_has_no_filters_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "riscv64")
    lacks = {layer.name: layer.lack for layer in WorkerSandbox().layers}
    assert list(lacks) == list(NEEDS)
    assert lacks[SECCOMP].startswith("seccomp: filters for riscv64 are not known: it needs Linux")


@pytest.mark.parametrize("name", ["x86_64", "aarch64"])
def test_the_policy_can_be_assembled_for_every_architecture(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    machine(monkeypatch, name)
    blanks = dict.fromkeys(["own_pid", "front_pid", "zygote_pid", "supervisor", "group"], 7)
    assert len(seccomp.Filter(refused_calls()).filled(**blanks)) < 4096 * 8


def test_a_layer_that_does_nothing_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "install", lambda _program: None)
    (seccomps,) = (layer for layer in WorkerSandbox().layers if layer.name == SECCOMP)
    assert seccomps.lack.startswith("the kernel accepted the filter but does not use it")


def test_where_nobody_may_mount_tenants_share_no_memory_that_is_not_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_memory: int, _path: str) -> None:
        raise PermissionError(errno.EPERM, "unshare: Operation not permitted")

    monkeypatch.setattr(worker_sandbox, "mount_memory", refused)
    sandbox = WorkerSandbox(shared_memory="own")
    lacks = {layer.name: layer.lack for layer in sandbox.layers}
    assert lacks[SHARED_MEMORY].startswith("unshare: Operation not permitted: it needs Linux 5.2, user namespaces")
    assert {
        (whose, restricted): WorkerSandbox(shared_memory=whose, restricted=restricted).shared_memory
        for whose in ("own", "pool", "machine")
        for restricted in (False, True)
    } == {
        ("own", False): SharedMemoryUse.OF_NO_TENANT,
        ("own", True): SharedMemoryUse.NONE,
        ("pool", False): SharedMemoryUse.ALL,
        ("pool", True): SharedMemoryUse.NONE,
        ("machine", False): SharedMemoryUse.ALL,
        ("machine", True): SharedMemoryUse.ALL,
    }


def test_a_trial_without_an_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise MemoryError

    monkeypatch.setattr(worker_sandbox, "give_up_capabilities", broken)
    with pytest.raises(RuntimeError, match="the pool cannot tell which layers are on"):
        WorkerSandbox()


def test_a_layer_that_fails_after_the_trial_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_program: bytes) -> None:
        raise OSError(errno.ENOMEM, "seccomp")

    sandbox = WorkerSandbox()
    sandbox.layers = [SandboxLayer(SECCOMP)]
    monkeypatch.setattr(worker_sandbox, "forbid_new_privileges", lambda: None)
    monkeypatch.setattr(seccomp, "install", full)
    with pytest.raises(OSError, match="seccomp"):
        sandbox.enter(1)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([SandboxLayer("a"), SandboxLayer("b")], "a, b"),
        ([SandboxLayer("a"), SandboxLayer("b", "old kernel")], "a; off: b"),
        ([SandboxLayer("b", "old kernel")], "none; off: b"),
    ],
)
def test_a_line_of_the_log_has_all_layers(layers: list[SandboxLayer], words: str) -> None:
    assert in_words(layers) == words
