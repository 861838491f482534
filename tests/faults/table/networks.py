# SPDX-License-Identifier: Apache-2.0
"""Slow, cut, half-closed, half-open and black-holed networks between a client and its pool."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import grpc

from tests.faults.table.call import Call
from tests.faults.table.fault import DEADLINE, OK, UNAVAILABLE, Fault
from tests.faults.table.functions import computing, replying, well
from tests.faults.table.namespace import Namespace, why_not
from tests.faults.table.proxy import Proxy
from tests.faults.table.scene import Scene
from tests.support.flight import pool_status
from tests.support.waiting import until

_REPLY_BYTES = 8 << 20
# Options of a pool that soon sends keepalives over silent connections.
_ATTENTIVE = {"updraft.service.listeners.KEEPALIVE_SECONDS": 10.0}
_SHORT_SECONDS = 5.0


def rows() -> Iterator[Fault]:
    """Yield each fault with the proxy, and the black holes also with a network namespace."""
    yield Fault("network-slow", _slow(delay_seconds=0.05, piece_bytes=1 << 16), OK)
    yield Fault("network-in-tiny-pieces", _slow(delay_seconds=0.001, piece_bytes=7), OK)
    for name, cut in _CUTS.items():
        for phase, begin in _PHASES.items():
            yield Fault(f"network-{name}-{phase}", _cut(cut, begin), UNAVAILABLE, constants=_ATTENTIVE)
    for phase, begin in _PHASES.items():
        yield Fault(f"network-half-open-{phase}", _half_open(begin), DEADLINE, constants=_ATTENTIVE)
    yield Fault("network-stalls-and-goes-on", _stalls, OK)
    yield Fault("network-connections-that-say-nothing", _silent_connections, OK, constants=_HASTY)
    yield Fault("network-connections-cut-in-the-preface", _cut_prefaces, OK)
    elsewhere = ("--listen", f"{Namespace.POOL_HOST}:0", "--insecure-no-token")
    for phase, begin in _PHASES.items():
        name = f"network-black-hole-in-a-namespace-{phase}"
        yield Fault(
            name,
            _black_hole(begin),
            DEADLINE,
            options=elsewhere,
            constants=_ATTENTIVE,
            needs=why_not,
            place=lambda _: Namespace(),
        )


_HASTY = {
    "updraft.service.listeners.HANDSHAKE_TIMEOUT_SECONDS": 1.0,
    "updraft.service.exchange.FIRST_MESSAGE_TIMEOUT_SECONDS": 1.0,
}


def _computing(scene: Scene, address: str) -> Call:
    call = Call(address, computing(scene.notes), timeout_seconds=_SHORT_SECONDS)
    call.send()
    scene.worker()
    return call


def _replying(scene: Scene, address: str) -> Call:
    call = Call(address, replying(scene.notes, _REPLY_BYTES), timeout_seconds=_SHORT_SECONDS)
    call.wait_for("admitted")
    call.stop_reading()
    call.send()
    scene.worker()
    return call


_PHASES: dict[str, Callable[[Scene, str], Call]] = {"computing": _computing, "replying": _replying}
_CUTS: dict[str, Callable[[Proxy], None]] = {
    "reset": Proxy.reset,
    "closed": Proxy.close_in_order,
    "half-closed-by-client": Proxy.close_towards_pool,
    "half-closed-by-pool": Proxy.close_towards_client,
}


def _slow(*, delay_seconds: float, piece_bytes: int) -> Callable[[Scene], grpc.StatusCode]:
    def happens(scene: Scene) -> grpc.StatusCode:
        with Proxy(scene.pool.tcp_address) as proxy:
            proxy.delay_seconds, proxy.piece_bytes = delay_seconds, piece_bytes
            call = Call(proxy.address, well)
            for _ in range(10):
                call.send()
            code = call.finish()
        assert call.answers() == ["well"] * 10
        return code

    return happens


def _cut(cut: Callable[[Proxy], None], begin: Callable[[Scene, str], Call]) -> Callable[[Scene], grpc.StatusCode]:
    def happens(scene: Scene) -> grpc.StatusCode:
        with Proxy(scene.pool.tcp_address) as proxy:
            call = begin(scene, proxy.address)
            cut(proxy)
            scene.go()
            return call.finish()

    return happens


def _half_open(begin: Callable[[Scene, str], Call]) -> Callable[[Scene], grpc.StatusCode]:
    """Drop the data of both sides, but keep every connection open until the pool has given up."""

    def happens(scene: Scene) -> grpc.StatusCode:
        with Proxy(scene.pool.tcp_address) as proxy:
            call = begin(scene, proxy.address)
            proxy.swallows.set()
            scene.go()
            code = call.ended()
            until("the pool has given up", lambda: pool_status(scene.pool.tcp_address).workers_busy == 0)
            return code

    return happens


def _black_hole(begin: Callable[[Scene, str], Call]) -> Callable[[Scene], grpc.StatusCode]:
    """Lose all packets, including the acknowledgments that the kernel sends."""

    def happens(scene: Scene) -> grpc.StatusCode:
        space = scene.place
        assert isinstance(space, Namespace)
        with Proxy(scene.pool.tcp_address, space.connected) as proxy:
            call = begin(scene, proxy.address)
            space.lose_everything()
            scene.go()
            code = call.ended()
            until("the pool has given up", lambda: pool_status(scene.pool.tcp_address).workers_busy == 0)
            return code

    return happens


def _stalls(scene: Scene) -> grpc.StatusCode:
    with Proxy(scene.pool.tcp_address) as proxy:
        call = Call(proxy.address, computing(scene.notes))
        call.send()
        scene.worker()
        proxy.delay_seconds = 2.0
        scene.go()
        call.wait_for("sequence")
        proxy.delay_seconds = 0.0
        return call.finish()


def _silent_connections(scene: Scene) -> grpc.StatusCode:
    host, _, port = scene.pool.tcp_address.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(100)]
    call = scene.call(well)
    call.send()
    code = call.finish()
    # The pool closes these connections; the client keeps its ends open until then.
    for one in silent:
        one.settimeout(30)
        while one.recv(4096):
            pass
        one.close()
    return code


def _cut_prefaces(scene: Scene) -> grpc.StatusCode:
    host, _, port = scene.pool.tcp_address.rpartition(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for length in range(len(preface)):
        with socket.create_connection((host, int(port))) as one:
            one.sendall(preface[:length])
    call = scene.call(well)
    call.send()
    return call.finish()
