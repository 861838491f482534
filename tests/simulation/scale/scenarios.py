# SPDX-License-Identifier: Apache-2.0
"""Scenarios of ten thousand executors on two hundred pods: the events, and their cost."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.simulation.pod import Pod
from tests.simulation.scale.load import Load, Result, Size, quantile

EXECUTORS, PODS, WORKERS = 10_000, 200, 8
QUEUE_LIMIT = 256
"""Default of --queue-limit."""
BATCHES, LEAST_SECONDS, MOST_SECONDS = 3, 1.0, 5.66
THINK_SECONDS = 63.0
"""Mean time between two exchanges of an executor. With this time, executors keep 85 % of the workers busy."""
EVENT_SECONDS = 300.0
SECONDS = 660.0
BIN_SECONDS = 10.0
_QUIET_TENANT, _FLOODING_TENANT = "quiet", "flood"
_TARGET_WAITING = 8
"""Number of waiting exchanges at a pod at which the autoscaler adds pods."""
_POD_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Scenario: one event in a large cluster."""

    name: str
    title: str
    what: str
    event: Callable[[Load], None]
    tenants: tuple[str, ...] = ("default",)
    watched: str | None = None
    """Tenant whose waits the outcome reports; None for all tenants."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Figures of one interval."""

    begin: float
    throughput: float
    median_wait: float
    p99_wait: float
    calls_per_second: float
    ready: float
    waiting: float
    busiest: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a scenario."""

    scenario: str
    bins: tuple[Bin, ...]
    failed: int
    """Number of exchanges that failed."""
    calls_per_exchange: float
    recovered_seconds: float | None
    """Time from the event until the 99th percentile of waits is normal: 0 if it never rose, None if it never fell."""
    executors: int = EXECUTORS
    pods: int = PODS

    def before(self) -> Bin:
        """Return the figures of the last interval before the event."""
        return next(each for each in reversed(self.bins) if each.begin + BIN_SECONDS <= EVENT_SECONDS)


def _churn(load: Load) -> None:
    """Replace a hundred executors every ten seconds. Each new executor knows no pod, and has to find one."""

    def replace() -> None:
        for _ in range(100):
            running = load.world.random.randrange(len(load.askers))
            load.askers[running].cancel()
            load.askers[running] = load.add_executor("default", 10.0)
        load.world.later(10.0, replace)

    replace()


def _deploy(load: Load) -> None:
    """Replace all pods, twenty at a time."""
    left = list(load.cluster.pods)

    def replace() -> None:
        if all(pod.is_ready for pod in load.cluster.pods):
            for pod in [left.pop() for _ in range(min(20, len(left)))]:
                load.cluster.drain(pod)
                _restart_when_down(load, pod)
        if left:
            load.world.later(1.0, replace)

    replace()


def _restart_when_down(load: Load, pod: Pod) -> None:
    def boot() -> None:
        if pod.state.name == "DOWN":
            load.cluster.boot(pod)
        else:
            load.world.later(0.5, boot)

    load.world.later(0.5, boot)


def _lose(load: Load, pods: Sequence[Pod], seconds: float) -> None:
    for pod in pods:
        load.cluster.crash(pod, is_silent=True)
        load.world.later(seconds, lambda pod=pod: load.cluster.boot(pod))  # type: ignore[misc]


def _lose_zone(load: Load) -> None:
    _lose(load, [pod for pod in load.cluster.pods if pod.zone == 0], 60.0)


def _outage(load: Load) -> None:
    _lose(load, load.cluster.pods, 60.0)


def _flood(load: Load) -> None:
    load.think_seconds[_FLOODING_TENANT] = 0.0


def _step(load: Load) -> None:
    """Double the load, and let an autoscaler add pods as the chart's HPA does."""
    load.think_seconds["default"] = THINK_SECONDS / 2.4

    def scale() -> None:
        pods = load.cluster.pods
        waiting = sum(pod.admission.waiting for pod in pods if pod.is_ready)
        wanted = math.ceil(waiting / _TARGET_WAITING)
        for number in range(min(max(0, wanted - len(pods)), len(pods), 2 * PODS - len(pods))):
            load.world.later(_POD_START_SECONDS, lambda number=number: load.add_pod(number % 3))  # type: ignore[misc]
        load.world.later(max(15.0, _POD_START_SECONDS), scale)

    load.world.later(15.0, scale)


SCENARIOS = (
    Scenario("churn", "Churn", "A hundred executors are replaced every ten seconds by new ones", _churn),
    Scenario("deploy", "Deploy", "All pods are drained and replaced, twenty at a time", _deploy),
    Scenario("zone", "A zone goes away", "A third of the pods vanish with their nodes, for 60 s", _lose_zone),
    Scenario("outage", "Herd after an outage", "All pods vanish with their nodes, for 60 s", _outage),
    Scenario(
        "flood",
        "One tenant floods",
        "Half of the executors belong to one tenant, and they begin to ask without a pause. The waits are those "
        "of the other tenant",
        _flood,
        (_QUIET_TENANT, _FLOODING_TENANT),
        _QUIET_TENANT,
    ),
    Scenario(
        "step",
        "Twice the load, with an autoscaler",
        f"The executors begin to ask twice as often. Every 30 s an autoscaler compares the waiting exchanges "
        f"with {_TARGET_WAITING} for each pod, and adds the missing pods, up to 400 in all; a pod starts in 30 s",
        _step,
    ),
)


def simulate(
    scenario: Scenario,
    *,
    seed: int = 1,
    scale: float = 1.0,
    queue_limit: int = QUEUE_LIMIT,
    seconds: float = SECONDS,
) -> Outcome:
    """Simulate a scenario; `scale` makes the cluster smaller, and `seconds` ends the run earlier."""
    size = Size(
        executors=round(EXECUTORS * scale),
        pods=round(PODS * scale),
        workers=WORKERS,
        seconds=seconds,
        think_seconds=THINK_SECONDS,
        batch_seconds=_batch_seconds,
        batches=BATCHES,
        arrival_seconds=73.0,
        tenants=scenario.tenants,
        queue_limit=queue_limit,
    )
    load = Load(size, seed)
    result = load.run([(EVENT_SECONDS, scenario.event)])
    return replace(_outcome(scenario, result, seconds), executors=size.executors, pods=size.pods)


def _batch_seconds(dice: random.Random) -> float:
    return dice.uniform(LEAST_SECONDS, MOST_SECONDS)


def _outcome(scenario: Scenario, result: Result, seconds: float) -> Outcome:
    bins = []
    for index in range(int(seconds / BIN_SECONDS)):
        begin = index * BIN_SECONDS
        waits = result.waits(begin, begin + BIN_SECONDS, scenario.watched)
        looks = [look for look in result.looks if begin < look.at <= begin + BIN_SECONDS]
        earlier = [look.calls for look in result.looks if look.at <= begin]
        bins.append(
            Bin(
                begin,
                result.throughput(begin, begin + BIN_SECONDS),
                quantile(waits, 0.5),
                quantile(waits, 0.99),
                (looks[-1].calls - (earlier[-1] if earlier else 0)) / BIN_SECONDS,
                sum(look.ready for look in looks) / len(looks),
                sum(look.waiting for look in looks) / len(looks),
                max(look.busiest for look in looks),
            )
        )
    ended = [each for each in result.done if each.at >= EVENT_SECONDS]
    last = result.looks[-1].calls
    calls = last - next((look.calls for look in result.looks if look.at >= EVENT_SECONDS), last)
    return Outcome(
        scenario.name,
        tuple(bins),
        sum(each.is_failed for each in result.done),
        calls / max(1, len(ended)),
        _recovered(bins),
    )


def _recovered(bins: Sequence[Bin]) -> float | None:
    """Return the time after the event at which the waits became normal for at least half a minute."""
    usual = statistics.median(each.p99_wait for each in bins if EVENT_SECONDS - 100 <= each.begin < EVENT_SECONDS)
    after = [each for each in bins if each.begin >= EVENT_SECONDS]
    is_usual = [each.p99_wait <= 2 * usual + 1 for each in after]
    if all(is_usual):
        return 0.0
    rose = is_usual.index(False)
    settled = (index for index in range(rose, len(after)) if all(is_usual[index : index + 3]))
    return next((after[index].begin - EVENT_SECONDS for index in settled), None)
