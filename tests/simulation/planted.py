# SPDX-License-Identifier: Apache-2.0
"""Planted bugs: mutations of the product's policy. For each mutation, some seed has to find a violation.

`python -m tests.simulation.planted` looks for the first seed that finds each bug and writes the table in README.md. A
bug of the client is planted in the model, because the simulator runs the model instead of the Java class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation.client.credit_window import CreditWindow
from tests.simulation.client.recovery import GiveUp, Kind, Recovery
from tests.simulation.client.replicas import Departure, Place, Replicas
from tests.simulation.client.reply_protocol import ReplyProtocol
from tests.simulation.client.request_log import RequestLog
from tests.simulation.client.retry_budget import RetryBudget
from tests.simulation.simulate import simulate
from updraft.service.security import WatchedFiles
from updraft_server.front.queue.admission import Admission
from updraft_server.front.queue.overtaking import Overtaking
from updraft_server.front.queue.turns import Turns
from updraft_server.pool.bindings import Binding
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.pool import Pool
from updraft_server.pool.workers import PooledWorkers
from updraft_writer.file_state import FileLife
from updraft_writer.open_file import OpenFile
from updraft_writer.quota import Quota, Reservation
from updraft_writer.replies import Replies
from updraft_writer.sinks import stored
from updraft_writer.sinks.sink import Step
from updraft_writer.sinks.stored import StoredSink

MOST_SEEDS = 1000
"""Number of seeds within which some seed has to find each bug: as many seeds as `make check` runs."""


class Bug(NamedTuple):
    """Mutation of one attribute."""

    what: str
    owner: Any
    attribute: str
    mutated: Callable[[Any], Any]
    """Function that returns the mutated attribute, given the original."""


def _instead(replacement: Any) -> Callable[[Any], Any]:
    return lambda _original: replacement


def _replaces_none(original: Any) -> Any:
    def missing(self: PooledWorkers, starting: int) -> int:
        wanted: int = original(self, starting)
        # Let the first workers start.
        vars(self)["was_whole"] = vars(self).get("was_whole", False) or not wanted
        return 0 if vars(self)["was_whole"] else wanted

    return missing


def _wakes_once(self: Admission) -> None:
    if self._places and self._dispatching is None:
        self._dispatching = asyncio.get_running_loop().create_task(self._dispatch())


async def _worker_without_cleanup(self: Admission, place: Any, binding: Any, **_options: Any) -> Any:
    self._is_ready(place, binding)
    self._workers_changed()
    return await place.granted


def _keeps_places(original: Any) -> Any:
    kept: list[Any] = []

    @contextmanager
    def place(self: Admission, tenant: str, task: Any, held_bytes: int = 0) -> Iterator[Any]:
        kept.append(original(self, tenant, task, held_bytes))
        yield kept[-1].__enter__()

    return place


def _holds_for_ever(original: Any) -> Any:
    def hold(self: Overtaking, task: Any, change: int) -> None:
        if change > 0:
            original(self, task, change)

    return hold


def _worst_first(original: Any) -> Any:
    return lambda self: iter(list(original(self))[::-1])


def _uncapped(original: Any) -> Any:
    def turns(self: Any, *, most_workers: Any, **options: Any) -> None:
        original(self, most_workers=lambda _tenant: None, **options)

    return turns


def _never_busy(original: Any) -> Any:
    def lease(self: Pool, worker: Any, task: Any, binding: Any) -> Any:
        before = worker.state
        given = original(self, worker, task, binding)
        if before.name == "IDLE" and worker.bound.used % 7 == 0:
            worker.state = before
        return given

    return lease


def _always_clean(original: Any) -> Any:
    return lambda self, lease, _outcome: original(self, lease, LeaseOutcome.CLEAN)


def _skips(self: RequestLog) -> None:
    consumed = self._consumed
    _ORIGINAL_RESTART(self)
    if self.one_to_one:
        self.transmitted = min(max(self.answered, consumed, self.answered + 1), self.sent)


_ORIGINAL_RESTART = RequestLog.restart


def _accepts_all(original: Any) -> Any:
    def accept(self: ReplyProtocol, event: Any, *, sequence: int = 0, rows: int = 0, consumed: int = 0) -> None:
        if event is not None and event.name == "BATCH":
            sequence = self._batches + 1
        original(self, event, sequence=sequence, rows=rows, consumed=max(consumed, self.consumed))

    return accept


def _always_leaves(original: Any) -> Any:
    return lambda self, _why, now_nanos: original(self, Departure.UNAVAILABLE, now_nanos)


def _leaves_hidden_pods(original: Any) -> Any:
    def choose(self: Replicas, addresses: Any, task: Any, now_nanos: int) -> Any:
        stay = self._stays.get(task)
        if stay is not None and stay.pod is not None and stay.pod.address not in addresses:
            stay.is_over = True
        return original(self, addresses, task, now_nanos)

    return choose


def _forgets_the_only_pod(original: Any) -> Any:
    def choose(self: Replicas, addresses: Any, task: Any, now_nanos: int) -> Any:
        return original(self, addresses, task if len(addresses) > 1 else None, now_nanos)

    return choose


def _gives_up_on_drains(original: Any) -> Any:
    def decide(self: Recovery, failure: Any, *rest: Any) -> Any:
        is_drain = failure.kind is Kind.POOL_UNAVAILABLE and failure.is_in_band
        return GiveUp() if is_drain else original(self, failure, *rest)

    return decide


def _releases_twice(original: Any) -> Any:
    def release(self: Reservation) -> None:
        quota, held = self._quota, self._held_bytes
        original(self)
        if quota is not None and held:
            quota._count(self, -held)

    return release


async def _acquire_without_cleanup(self: Quota, tenant: str, wanted_bytes: int) -> Any:
    from updraft_writer.quota import _Waiter

    waiter = _Waiter(tenant, wanted_bytes, self._clock())
    self._waiters.append(waiter)
    self._dispatch()
    async with asyncio.timeout(self.limits.timeout_seconds):
        return await asyncio.shield(waiter.granted)


def _unlocked(original: Any) -> Any:
    class Open:
        def __aenter__(self) -> Any:
            return _nothing()

        def __aexit__(self, *_error: object) -> Any:
            return _nothing()

    def made(self: OpenFile) -> None:
        original(self)
        self._store_turn = self._encode_turn = Open()  # type: ignore[assignment]

    return made


async def _nothing() -> None:
    pass


def _drops(original: Any) -> Any:
    def flush(self: OpenFile) -> None:
        for group in self._builder.seal():
            group.reservation.release()

    return flush


async def _credits_twice(self: Replies) -> None:
    self._credit += 2
    await self._send(self._metadata(max_message_bytes=self._max_message_bytes))


async def _completes_only(self: StoredSink) -> None:
    await self._run(Step.COMPLETE, self.storage.complete)


def _eager(original: Any) -> Any:
    def next_ask(self: CreditWindow) -> int | None:
        size = original(self)
        return size // 2 if size is not None else None

    return next_ask


BUGS: dict[str, Bug] = {
    "wake-up": Bug(
        "A change of the pool wakes waiting exchanges only once", Admission, "_workers_changed", _instead(_wakes_once)
    ),
    "drain": Bug("A drain is ignored", Admission, "drain", _instead(lambda self: None)),
    "drain-grant": Bug(
        "An exchange gets the worker that was starting for it when the drain began",
        Admission,
        "_unless_lost",
        _instead(staticmethod(lambda _place, grant: grant)),
    ),
    "turn-leak": Bug(
        "A worker given back still counts for its tenant", Turns, "ended", _instead(lambda self, _turn: None)
    ),
    "hold-leak": Bug("A task holds a worker for ever once it had one", Overtaking, "hold", _holds_for_ever),
    "fairness": Bug("The tenant with the most workers comes first", Turns, "candidates", _worst_first),
    "caps": Bug("Caps on workers are ignored", Turns, "__init__", _uncapped),
    "owners": Bug("A worker serves any owner", Binding, "can_serve", _instead(lambda self, _wanted: True)),
    "double-lease": Bug("A leased worker sometimes stays idle, and is leased again", Pool, "_lease", _never_busy),
    "no-replacement": Bug("Dead workers are not replaced", PooledWorkers, "missing", _replaces_none),
    "broken-reuse": Bug("A worker is reused whatever its exchange left", Pool, "_released", _always_clean),
    "place-leak": Bug("An exchange keeps its place in the queue", Admission, "place", _keeps_places),
    "cancel-leak": Bug(
        "A waiter that is cancelled keeps the worker that it was just granted",
        Admission,
        "worker",
        _instead(_worker_without_cleanup),
    ),
    "replay-skips": Bug("A replay leaves out the batch that was in work", RequestLog, "restart", _instead(_skips)),
    "repeats": Bug("The client accepts a repeated result", ReplyProtocol, "accept", _accepts_all),
    "lost-file": Bug(
        "A token file that has vanished revokes nothing",
        WatchedFiles,
        "unconfirmed_seconds",
        _instead(property(lambda self: 0.0)),
    ),
    "old-tokens": Bug("A token file is read only once", WatchedFiles, "refresh", _instead(lambda self: False)),
    "retry-load": Bug("The retry budget is ignored", RetryBudget, "take_nanos", _instead(lambda self, _now: 0)),
    "lost-retry": Bug(
        "An exchange that a draining pod refuses is not tried again", Recovery, "decide", _gives_up_on_drains
    ),
    "full-pod": Bug(
        "A task leaves a pod that has lost or refused one of its calls, although it has another one there",
        Place,
        "record_departure",
        _always_leaves,
    ),
    "hidden-pod": Bug(
        "A task leaves a pod that the pool's name has lost, although it has a call there",
        Replicas,
        "choose",
        _leaves_hidden_pods,
    ),
    "only-pod": Bug(
        "A task forgets its pod if the pool's name had only that one", Replicas, "choose", _forgets_the_only_pod
    ),
    "double-release": Bug("A reservation is released twice", Reservation, "release", _releases_twice),
    "quota-leak": Bug(
        "A waiter that gives up keeps its turn and its bytes", Quota, "acquire", _instead(_acquire_without_cleanup)
    ),
    "quota-wake-up": Bug("Released bytes wake no waiter", Quota, "_change", _instead(Quota._count)),
    "quota-ignored": Bug(
        "A batch is admitted whether it fits or not", Quota, "_fits", _instead(lambda self, _waiter: True)
    ),
    "double-credit": Bug(
        "Each ask is answered with credit for two batches", Replies, "give_credit", _instead(_credits_twice)
    ),
    "small-ask": Bug("The client asks for half the credit that it uses", CreditWindow, "next_ask", _eager),
    "poison-ignored": Bug("A file goes on after a failed step", FileLife, "fail", _instead(lambda self, _error: None)),
    "write-repeated": Bug(
        "A failed write or sync is repeated, which hides the loss",
        stored,
        "may_be_repeated",
        _instead(lambda _step, _error: True),
    ),
    "unordered": Bug("Row groups of a file are stored in any order", OpenFile, "__post_init__", _unlocked),
    "flush-drops": Bug("A row group that is flushed early is lost", OpenFile, "flush", _drops),
    "unpublished": Bug(
        "A receipt is sent for a file that has no name yet", StoredSink, "publish", _instead(_completes_only)
    ),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug for the duration of the block."""
    bug = BUGS[name]
    original = bug.owner.__dict__[bug.attribute]
    setattr(bug.owner, bug.attribute, bug.mutated(original))
    try:
        yield
    finally:
        setattr(bug.owner, bug.attribute, original)


def first_seed(name: str, most: int = MOST_SEEDS) -> tuple[int, str] | None:
    """Return the first seed that finds a bug, and the violation; None if no seed finds the bug."""
    with planted(name):
        for seed in range(most):
            if violation := simulate(seed).violation:
                return seed, violation
    return None


_README = Path(__file__).with_name("README.md")
_BEGIN, _END = "<!-- planted bugs -->\n", "<!-- planted bugs: end -->\n"


def table(found: dict[str, tuple[int, str] | None]) -> str:
    """Return the table of README.md."""
    lines = ["| bug | planted in | seeds until it was found | what the seed found |", "| --- | --- | --- | --- |"]
    for name, bug in BUGS.items():
        where = getattr(bug.owner, "__name__", "").rpartition(".")[2]
        seed, violation = found.get(name) or (-1, "")
        lines.append(f"| {bug.what} | `{where}.{bug.attribute}` | {seed + 1 or '-'} | {violation} |")
    return "\n".join(lines) + "\n"


def found_in_readme() -> dict[str, tuple[int, str]]:
    """Return the seed that finds each bug, and the violation, from the table in README.md."""
    rows = _README.read_text().partition(_BEGIN)[2].partition(_END)[0].splitlines()[2:]
    cells = [row.removesuffix(" |").split(" | ") for row in rows]
    return {name: (int(seed) - 1, found) for name, (*_, seed, found) in zip(BUGS, cells, strict=True)}


def main() -> None:
    """Write the table."""
    found: dict[str, tuple[int, str] | None] = {}
    for name in BUGS:
        found[name] = first_seed(name)
        print(name, found[name], flush=True)
    before, _, rest = _README.read_text().partition(_BEGIN)
    _README.write_text(f"{before}{_BEGIN}{table(found)}{_END}{rest.partition(_END)[2]}")


if __name__ == "__main__":
    main()
