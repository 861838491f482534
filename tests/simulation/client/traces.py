# SPDX-License-Identifier: Apache-2.0
"""Traces that prove the models equal to the Java classes: random events, and the decisions of a model.

`python -m tests.simulation.client.traces` writes the traces into the Java client's test resources. There,
`PolicyTracesTest` runs the real classes on the same events and compares every decision. `test_client_models` checks
that the models still decide as in the traces. A line contains an event, a tab, and the decision; a line that begins
with `new` makes a new object.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.simulation.client.circuit import Circuit
from tests.simulation.client.credit_window import CreditWindow
from tests.simulation.client.recovery import (
    Again,
    Decision,
    Failure,
    GiveUp,
    Kind,
    Origin,
    Progress,
    Reach,
    Recovery,
    Timeouts,
)
from tests.simulation.client.replicas import Departure, Place, Replicas
from tests.simulation.client.reply_protocol import Event, ReplyProtocol
from tests.simulation.client.request_log import Batch, MalformedReplyError, Replay, RequestLog
from tests.simulation.client.retry_budget import RetryBudget
from tests.support.paths import REPOSITORY

TARGET = REPOSITORY / "spark-connector/client/src/test/resources/policy-traces.txt"
_SEQUENCES = 20
_EVENTS = 30
_MILLISECOND = 1_000_000


def _batch(rows: int) -> Batch:
    # Size of a batch of one int64 column without nulls.
    return Batch(rows, 8 * rows)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _retry_budget(dice: random.Random) -> Iterator[str]:
    yield "new RetryBudget\t"
    budget, now = RetryBudget(), dice.randrange(1 << 40)
    for _ in range(_EVENTS):
        now += dice.choice([0, 0, dice.randrange(300 * _MILLISECOND), dice.randrange(5_000 * _MILLISECOND)])
        yield f"take {now}\t{budget.take_nanos(now)}"


def _circuit(dice: random.Random) -> Iterator[str]:
    yield "new Circuit\t"
    circuit, now = Circuit(lambda least, most: (least + most) // 2), dice.randrange(1 << 40)
    for _ in range(_EVENTS):
        now += dice.choice([0, dice.randrange(400 * _MILLISECOND), dice.randrange(3_000 * _MILLISECOND)])
        if dice.random() < 0.06:
            circuit.connected()
            yield f"connected\t{_flag(circuit.is_open)}"
        else:
            may = circuit.may_attempt(now)
            yield f"attempt {now}\t{_flag(may)} {_flag(circuit.is_open)}"


def _replicas(dice: random.Random) -> Iterator[str]:
    yield "new Replicas\t"
    uses = iter(range(1, 1 << 20))
    replicas, now = Replicas(lambda: -next(uses)), dice.randrange(1 << 40)
    places: list[Place] = []
    for _ in range(2 * _EVENTS):
        now += dice.choice([0, dice.randrange(15_000 * _MILLISECOND)])
        if places and dice.random() < 0.4:
            index = dice.randrange(len(places))
            match dice.choice(["release", "release", "ended", "left", "left"]):
                case "release":
                    places.pop(index).release()
                    yield f"release {index}\t"
                case "ended":
                    places[index].ended()
                    yield f"ended {index}\t"
                case _:
                    why = dice.choice(list(Departure))
                    places[index].record_departure(why, now)
                    yield f"left {index} {why.name} {now}\t"
            continue
        addresses = sorted(dice.sample(range(1, 6), dice.randint(1, 5)))
        task = dice.choice([None, "a", "a", "b", "c"])
        places.append(place := replicas.choose(addresses, task, now))
        chosen = f"{place.address} {_flag(place.has_alternatives)}"
        yield f"choose {','.join(map(str, addresses))} {task or '-'} {now}\t{chosen}"


def _recovery(dice: random.Random) -> Iterator[str]:
    timeouts = Timeouts(
        acquire_milliseconds=dice.choice([0, 3_000, 600_000]),
        connect_milliseconds=dice.choice([1_000, 10_000]),
        max_replays=dice.choice([0, 1, 3]),
    )
    now = dice.randrange(1 << 40)
    yield (
        f"new Recovery {timeouts.acquire_milliseconds} {timeouts.connect_milliseconds} {timeouts.max_replays} {now}\t"
    )
    # One model draws the shortest pause, and another the longest, because nothing else depends on the draw.
    low = Recovery(timeouts, RetryBudget(), now, lambda least, _most: least)
    high = Recovery(timeouts, RetryBudget(), now, lambda _least, most: most)
    for _ in range(_EVENTS):
        now += dice.choice([0, dice.randrange(200 * _MILLISECOND), dice.randrange(8_000 * _MILLISECOND)])
        match dice.choice(["decide"] * 8 + ["progressed", "waited", "elsewhere"]):
            case "elsewhere":
                yield f"elsewhere\t{_flag(low.may_try_elsewhere)}"
            case "progressed":
                low.progressed()
                high.progressed()
                yield "progressed\t"
            case "waited":
                nanos = dice.randrange(5_000 * _MILLISECOND)
                low.waited(nanos)
                high.waited(nanos)
                yield f"waited {nanos}\t"
            case _:
                failure = Failure(
                    dice.choice(list(Kind)),
                    dice.choice([Origin.POOL, Origin.POOL, Origin.CONNECTION, Origin.CONNECTION, Origin.CLIENT]),
                    is_in_band := dice.random() < 0.5,
                    dice.choice([0, 0, 1, 2]) if is_in_band else 0,
                    dice.random() < 0.4,
                )
                progress = Progress(
                    dice.random() < 0.5,
                    dice.choice([0, 2]),
                    dice.choice([0, 1, 2, 3]),
                    dice.random() < 0.8,
                    dice.choice(list(Reach)),
                )
                hint = dice.choice([None, None, 0, 500, 20_000])
                decisions = [model.decide(failure, progress, hint, now) for model in (low, high)]
                yield f"decide {_words(failure)} {_words(progress)} {hint if hint is not None else '-'} {now}\t" + (
                    _shown(*decisions)
                )


def _words(values: Failure | Progress) -> str:
    return " ".join(
        _flag(value) if isinstance(value, bool) else str(getattr(value, "value", value)) for value in values
    )


def _shown(low: Decision, high: Decision) -> str:
    if isinstance(low, Again) and isinstance(high, Again):
        return f"again {low.pause_milliseconds} {high.pause_milliseconds}"
    return "give up" if isinstance(low, GiveUp) else "another token"


def _request_log(dice: random.Random) -> Iterator[str]:
    arguments = dice.randint(1, 4), dice.choice([100, 10_000]), dice.choice([100, 300, 10_000])
    replay = dice.choice(list(Replay))
    yield f"new RequestLog {' '.join(map(str, arguments))} {replay.value}\t"
    log = RequestLog(*arguments, replay)
    taken = 0
    for _ in range(2 * _EVENTS):
        event = dice.choice(["add", "add", "transmit", "transmit", "consumed", "answered", "result", "restart"])
        outcome = ""
        match event:
            case "add" if log.has_room:
                rows = dice.randint(1, 20)
                log.add(_batch(rows))
                event = f"add {rows}"
            case "transmit" if log.untransmitted() is not None:
                log.transmit()
            case "consumed" if log.transmitted > taken:
                taken = dice.randint(taken, log.transmitted)
                log.consumed_through(taken)
                event = f"consumed {taken}"
            case "answered" if log.one_to_one and (log.transmitted > log.answered or log.answered == log.sent):
                batch = log._held.get(log.answered + 1)
                rows = batch.rows + int(dice.random() < 0.1) if batch is not None else 1
                event = f"answered {rows}"
                outcome = _malformed(lambda rows=rows: log.answered_next(rows))  # type: ignore[misc]
                taken = max(taken, log.answered)
            case "result":
                log.result_taken()
            case "restart" if log.replayable:
                log.restart()
                taken = log.answered if log.one_to_one else 0
            case _:
                continue
        waiting = log.untransmitted() if log.transmitted < log.sent else None
        left = waiting.rows if waiting is not None else "-"
        state = log.sent, log.transmitted, log.answered, _flag(log.replayable), log.forgotten_bytes
        yield f"{event}\t{outcome}{' '.join(map(str, state))} {_flag(log.has_room)} {left}"


def _malformed(step: Callable[[], None]) -> str:
    try:
        step()
    except MalformedReplyError:
        return "malformed "
    return ""


def _reply_protocol(dice: random.Random) -> Iterator[str]:
    yield "new ReplyProtocol\t"
    protocol = ReplyProtocol()
    likely = [Event.ADMITTED, Event.SCHEMA, *[Event.BATCH] * 6]
    batches = rows = consumed = 0
    for index in range(_EVENTS // 2):
        is_likely = index < len(likely) and dice.random() < 0.9
        event = likely[index] if is_likely else dice.choice([*Event, Event.BATCH, None])
        sequence, count = 0, 0
        if event is Event.BATCH:
            sequence, count = batches + dice.choice([1, 1, 1, 1, 0, 2]), dice.randint(1, 9)
        elif event is Event.FINISHED:
            sequence, count = batches, rows + dice.choice([0, 0, 1])
        consumed = max(0, consumed + dice.choice([0, 0, 1, 1, -1]))
        outcome = _malformed(
            lambda event=event, sequence=sequence, count=count, consumed=consumed: protocol.accept(  # type: ignore[misc]
                event, sequence=sequence, rows=count, consumed=consumed
            )
        )
        if event is Event.BATCH and not outcome:
            batches, rows = sequence, rows + count
        name = event.value if event is not None else "CREDIT"
        yield f"{name} {sequence} {count} {consumed}\t{outcome}{protocol.state.value} {protocol.consumed}"
        if outcome:
            # The client ends a call whose pool breaks the protocol.
            return


def _credit_window(dice: random.Random) -> Iterator[str]:
    window_bytes = dice.choice([50, 200, 10_000])
    yield f"new CreditWindow {window_bytes}\t"
    window = CreditWindow(window_bytes)
    for _ in range(2 * _EVENTS):
        event = dice.choice(["add", "add", "ask", "ask", "send", "credit", "stored", "restart"])
        outcome = ""
        match event:
            case "add":
                rows = dice.randint(1, 9)
                outcome = f"{_flag(window.has_room(8 * rows))} "
                window.add(_batch(rows))
                event = f"add {rows}"
            case "ask":
                outcome = f"{window.next_ask() or '-'} "
            case "send" if window.has_credit:
                outcome = f"{window.send().rows} "
            case "credit":
                number = dice.randint(0, window._asked + int(dice.random() < 0.1))
                event = f"credit {number}"
                outcome = _malformed(lambda number=number: window.take_credit(number))  # type: ignore[misc]
            case "stored":
                number = dice.randint(0, window.sent + int(dice.random() < 0.1))
                event = f"stored {number}"
                outcome = _malformed(lambda number=number: window.take_stored(number))  # type: ignore[misc]
            case "restart" if not window.sent and dice.random() < 0.3:
                window.restart()
            case _:
                continue
        flags = _flag(window.has_credit), _flag(window.is_empty), _flag(window.is_stored)
        yield f"{event}\t{outcome}{window.sent} {window.sent_rows} {' '.join(flags)}"


_CLASSES: tuple[Callable[[random.Random], Iterator[str]], ...] = (
    _retry_budget,
    _circuit,
    _replicas,
    _recovery,
    _request_log,
    _reply_protocol,
    _credit_window,
)


def traces(sequences: int = _SEQUENCES) -> Iterator[str]:
    """Yield the lines of all traces."""
    for index, of in enumerate(_CLASSES):
        for sequence in range(sequences):
            yield from of(random.Random(1_000_000 * index + sequence))


def written(sequences: int = _SEQUENCES) -> str:
    """Return the text of the traces."""
    return "".join(f"{line}\n" for line in traces(sequences))


if __name__ == "__main__":
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else TARGET
    target.write_text(written(int(sys.argv[1]) if len(sys.argv) > 1 else _SEQUENCES))
    print(target)
