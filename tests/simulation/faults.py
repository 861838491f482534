# SPDX-License-Identifier: Apache-2.0
"""Faults that a scenario schedules. Each fault happens to a cluster at one moment."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.cluster import Cluster
from tests.simulation.disk import DiskFault
from tests.simulation.network import Disturbance, Stream
from tests.simulation.pod import Pod
from tests.simulation.workers_side import WorkerProcess
from tests.simulation.writer import Writer


class Fault(NamedTuple):
    """Fault at a moment."""

    at_seconds: float
    name: str


def _a_pod(cluster: Cluster) -> Pod | None:
    ready = [pod for pod in cluster.pods if pod.is_ready]
    return cluster.world.random.choice(ready) if ready else None


def _a_worker(cluster: Cluster) -> WorkerProcess | None:
    pod = _a_pod(cluster)
    alive = list(pod.side.processes.values()) if pod is not None and pod.side is not None else []
    return cluster.world.random.choice(alive) if alive else None


def _a_stream(cluster: Cluster) -> Stream | None:
    streams = [stream for pod in cluster.pods for stream in pod.streams]
    return cluster.world.random.choice(streams) if streams else None


def _restart(cluster: Cluster, pod: Pod) -> None:
    """Start a pod again when it is down, as Kubernetes does."""

    def boot() -> None:
        if pod.state.name == "DOWN":
            cluster.boot(pod)
        else:
            cluster.world.later(1.0, boot)

    cluster.world.later(cluster.world.seconds(2.0), boot)


def _kill_worker(cluster: Cluster) -> None:
    if (worker := _a_worker(cluster)) is not None:
        cluster.world.note("kill", worker.name)
        worker.die(-signal.SIGKILL)


def _hang_worker(cluster: Cluster) -> None:
    if (worker := _a_worker(cluster)) is not None:
        cluster.world.note("hang", worker.name)
        worker.is_stuck = True


def _kill_zygote(cluster: Cluster) -> None:
    pod = _a_pod(cluster)
    if pod is not None and pod.side is not None:
        cluster.world.note("zygote", pod.name)
        pod.side.crash_zygote(cluster.world.seconds(0.5))


def _refuse_forks(cluster: Cluster) -> None:
    pod = _a_pod(cluster)
    side = pod.side if pod is not None else None
    if side is not None:
        cluster.world.note("no forks", side.pod)
        side.refuses_forks = True

        def allow() -> None:
            side.refuses_forks = False

        cluster.world.later(cluster.world.seconds(3.0), allow)


def _slow_pod(cluster: Cluster) -> None:
    if (pod := _a_pod(cluster)) is not None:
        pod.slowness = cluster.world.random.choice([3.0, 10.0])
        cluster.world.note("slow", pod.name, pod.slowness)


def _drain(cluster: Cluster) -> None:
    if (pod := _a_pod(cluster)) is not None:
        cluster.drain(pod)
        _restart(cluster, pod)


def _deploy(cluster: Cluster) -> None:
    """Replace every pod in turn, as a rolling update does: each pod when all pods are ready again."""
    left = list(cluster.pods)

    def replace() -> None:
        if not left:
            return
        if all(pod.is_ready for pod in cluster.pods):
            pod = left.pop()
            cluster.drain(pod)
            _restart(cluster, pod)
        cluster.world.later(3.0, replace)

    replace()


def _crash(cluster: Cluster) -> None:
    if (pod := _a_pod(cluster)) is not None:
        cluster.crash(pod, is_silent=False)
        _restart(cluster, pod)


def _lose_node(cluster: Cluster) -> None:
    if (pod := _a_pod(cluster)) is not None:
        cluster.crash(pod, is_silent=True)
        _restart(cluster, pod)


def _lose_zone(cluster: Cluster) -> None:
    zone = cluster.world.random.choice(cluster.pods).zone
    for pod in cluster.pods:
        if pod.zone == zone and pod.is_ready:
            cluster.crash(pod, is_silent=True)
            _restart(cluster, pod)


def _hide_pods(cluster: Cluster) -> None:
    """Remove addresses of pods from the name for a while, as failed readiness probes do."""
    for pod in cluster.pods:
        if pod.is_ready and cluster.world.chance(0.5):
            cluster.hide(pod, cluster.world.seconds(4.0))


def _flap(cluster: Cluster) -> None:
    """Break some streams of a pod and remove the pod from the name, as an unstable network does."""
    if (pod := _a_pod(cluster)) is not None:
        cluster.hide(pod, cluster.world.seconds(4.0))
        for stream in pod.streams:
            if cluster.world.chance(0.5):
                cluster.world.note("break", stream.name)
                stream.break_now()


def _break_stream(cluster: Cluster) -> None:
    if (stream := _a_stream(cluster)) is not None:
        cluster.world.note("break", stream.name)
        stream.break_now()


def _silence_stream(cluster: Cluster) -> None:
    if (stream := _a_stream(cluster)) is not None:
        cluster.world.note("silence", stream.name)
        stream.fall_silent()


def _disturb_streams(cluster: Cluster) -> None:
    for stream in [stream for pod in cluster.pods for stream in pod.streams]:
        disturbance = cluster.world.random.choice(list(Disturbance))
        upwards = cluster.world.chance(0.5)
        cluster.world.note("disturb", stream.name, disturbance.value, upwards)
        stream.disturb(disturbance, upwards=upwards)


def _cancel_granted(cluster: Cluster) -> None:
    for pod in cluster.pods:
        pod.cancels_next_grant = True


def _rotate_token(cluster: Cluster) -> None:
    cluster.token_file.rotate()


def _lose_tokens(cluster: Cluster) -> None:
    cluster.token_file.vanish(cluster.world.seconds(4.0))


def _jump_clock(cluster: Cluster) -> None:
    seconds = cluster.world.random.choice([1.0, 30.0, 120.0])
    cluster.world.note("clock jumps", seconds)
    cluster.world.loop.skip(seconds)
    cluster.checker.clock_jumped()


def _a_writer(cluster: Cluster) -> Writer | None:
    up = [writer for writer in cluster.writers if writer.is_up]
    return cluster.world.random.choice(up) if up else None


def _crash_writer(cluster: Cluster) -> None:
    if (writer := _a_writer(cluster)) is not None:
        writer.crash()
        cluster.world.later(cluster.world.seconds(2.0), writer.boot)


def _drain_writer(cluster: Cluster) -> None:
    if (writer := _a_writer(cluster)) is not None:
        writer.drain()

        def replace() -> None:
            if writer.is_draining and writer.is_up and not writer.streams:
                writer.crash()
                cluster.world.later(1.0, writer.boot)
            elif writer.is_draining:
                cluster.world.later(1.0, replace)

        cluster.world.later(1.0, replace)


def _fill_disk(cluster: Cluster) -> None:
    room_bytes = cluster.disk.room_bytes
    cluster.world.note("disk is full")
    cluster.disk.room_bytes = 0

    def free() -> None:
        cluster.disk.room_bytes += room_bytes

    cluster.world.later(cluster.world.seconds(3.0), free)


def _break_disk(cluster: Cluster) -> None:
    cluster.disk.faults += cluster.world.random.choices(list(DiskFault), k=cluster.world.between(1, 2))


def _break_write(cluster: Cluster) -> None:
    streams = [stream for writer in cluster.writers for stream in writer.streams]
    if streams:
        stream = cluster.world.random.choice(streams)
        cluster.world.note("break", stream.name)
        cluster.world.random.choice([stream.break_now, stream.fall_silent])()


FAULTS: dict[str, Callable[[Cluster], None]] = {
    "kill worker": _kill_worker,
    "hang worker": _hang_worker,
    "kill zygote": _kill_zygote,
    "refuse forks": _refuse_forks,
    "slow pod": _slow_pod,
    "drain": _drain,
    "deploy": _deploy,
    "crash": _crash,
    "lose node": _lose_node,
    "lose zone": _lose_zone,
    "hide pods": _hide_pods,
    "flap": _flap,
    "break stream": _break_stream,
    "silence stream": _silence_stream,
    "disturb streams": _disturb_streams,
    "cancel granted": _cancel_granted,
    "rotate token": _rotate_token,
    "lose tokens": _lose_tokens,
    "jump clock": _jump_clock,
    "crash writer": _crash_writer,
    "drain writer": _drain_writer,
    "fill disk": _fill_disk,
    "break disk": _break_disk,
    "break write": _break_write,
}
WRITER_FAULTS = ("crash writer", "drain writer", "fill disk", "break disk", "break write")
GENTLE = frozenset({"kill zygote", "drain", "deploy", "hide pods"})
"""Faults that must cost no task an attempt: running work is not lost, and some pod serves the waiting exchanges."""
