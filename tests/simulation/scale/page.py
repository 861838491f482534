# SPDX-License-Identifier: Apache-2.0
"""Page of the simulated scale: docs/scale.md and its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.simulation.scale.measured import CLIENTS, WORKERS, Calibration
from tests.simulation.scale.one_pool import TASKS, OnePool
from tests.simulation.scale.one_pool import WORKERS as WORKERS_OF_ONE_POOL
from tests.simulation.scale.scenarios import EVENT_SECONDS, EXECUTORS, PODS, SCENARIOS, Bin, Outcome
from tests.simulation.scale.scenarios import WORKERS as WORKERS_OF_A_POD
from tests.support.paths import REPOSITORY

_PAGE = REPOSITORY / "docs/scale.md"
_TEMPLATE = Path(__file__).with_name("page.md.in")
_IMAGES = REPOSITORY / "docs/images"
# Colours from the Okabe-Ito palette, which colour-blind readers can tell apart.
_MEDIAN, _P99, _OTHER = "#0072B2", "#E69F00", "#009E73"


def write_page(
    calibration: Calibration,
    outcomes: Mapping[str, Outcome],
    queues: Mapping[int, Outcome],
    one_pools: Mapping[tuple[str, int], OnePool],
) -> None:
    """Write the page and its pictures, and print their paths."""
    for scenario in SCENARIOS:
        path = _IMAGES / f"scale-{scenario.name}.svg"
        _draw(outcomes[scenario.name], scenario.title, path)
        print(path.relative_to(REPOSITORY))
    _PAGE.write_text(_text(calibration, outcomes, queues, one_pools))
    print(_PAGE.relative_to(REPOSITORY))


def _text(
    calibration: Calibration,
    outcomes: Mapping[str, Outcome],
    queues: Mapping[int, Outcome],
    one_pools: Mapping[tuple[str, int], OnePool],
) -> str:
    return _TEMPLATE.read_text().format(
        executors=EXECUTORS,
        pods=PODS,
        workers_of_a_pod=WORKERS_OF_A_POD,
        workers=WORKERS,
        clients=CLIENTS,
        calibration=_calibration_table(calibration),
        overhead_milliseconds=calibration.overhead_seconds * 1000,
        summary=_summary(outcomes),
        sections="\n".join(_section(number, outcomes) for number in range(len(SCENARIOS))),
        queues=_queue_table(queues),
        one_pool=_one_pool_table(one_pools),
        tasks=TASKS,
        workers_of_one_pool=WORKERS_OF_ONE_POOL,
    )


def _calibration_table(calibration: Calibration) -> str:
    measured, simulated = calibration.measured, calibration.simulated
    rows = [
        ("exchanges a second", measured.exchanges_per_second, simulated.exchanges_per_second, "exchanges_per_second"),
        ("median wait, seconds", measured.median_wait_seconds, simulated.median_wait_seconds, "median_wait_seconds"),
        ("99 % wait, seconds", measured.p99_wait_seconds, simulated.p99_wait_seconds, "p99_wait_seconds"),
    ]
    lines = ["| | measured | simulated | difference |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {title} | {real:.2f} | {model:.2f} | {100 * calibration.errors[name]:+.1f} % |"
        for title, real, model, name in rows
    ]
    return "\n".join(lines)


def _summary(outcomes: Mapping[str, Outcome]) -> str:
    lines = [
        (
            "| event | median and 99 % wait before, s | worst 99 % wait, s | seconds until waits are as before "
            "| calls for each exchange | busiest pod before, worst after | failed exchanges |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for scenario in SCENARIOS:
        outcome = outcomes[scenario.name]
        before, after = outcome.before(), _after(outcome)
        recovered = (
            f"{outcome.recovered_seconds:.0f}" if outcome.recovered_seconds is not None else "not yet at the end"
        )
        lines.append(
            f"| [{scenario.title}](#{_anchor(scenario.title)}) | {before.median_wait:.1f}, {before.p99_wait:.1f} "
            f"| {max(each.p99_wait for each in after):.1f} | {recovered} | {outcome.calls_per_exchange:.2f} "
            f"| {before.busiest:.1f}, {max(each.busiest for each in after):.1f} | {outcome.failed} |"
        )
    return "\n".join(lines)


def _section(number: int, outcomes: Mapping[str, Outcome]) -> str:
    scenario = SCENARIOS[number]
    outcome = outcomes[scenario.name]
    before, after = outcome.before(), _after(outcome)
    least = min(after, key=lambda each: each.throughput)
    end = after[-1]
    most_calls = max(each.calls_per_second for each in after)
    return "\n".join(
        (
            f"\n### {scenario.title}\n",
            f"{scenario.what}. {_size(outcome)}Before the event, {before.throughput:.0f} exchanges ended each second.",
            f"After it, each second at least {least.throughput:.0f} ended and at most {most_calls:.0f} were called.",
            f"At the end, {end.throughput:.0f} ended each second, with a median wait of {end.median_wait:.1f} s.\n",
            f"![{scenario.title}: exchanges, waits and calls over time](images/scale-{scenario.name}.svg)\n",
        )
    )


def _size(outcome: Outcome) -> str:
    """Return a sentence about the size, if the size differs from that of the other scenarios."""
    if (outcome.executors, outcome.pods) == (EXECUTORS, PODS):
        return ""
    return f"Here {outcome.executors:,} executors use {outcome.pods} pods. "


def _queue_table(queues: Mapping[int, Outcome]) -> str:
    lines = [
        "The outage in a cluster of a tenth of the size, with several queue limits:",
        "",
        (
            "| `--queue-limit` | 99 % wait before, s | worst 99 % wait, s | 99 % wait at the end, s | calls for each "
            "exchange |"
        ),
        "| --- | --- | --- | --- | --- |",
    ]
    for limit, outcome in queues.items():
        after = _after(outcome)
        lines.append(
            f"| {limit} | {outcome.before().p99_wait:.1f} | {max(each.p99_wait for each in after):.1f} "
            f"| {after[-1].p99_wait:.1f} | {outcome.calls_per_exchange:.2f} |"
        )
    return "\n".join(lines)


def _one_pool_table(one_pools: Mapping[tuple[str, int], OnePool]) -> str:
    lines = [
        "| tasks of | `--queue-limit` | longest wait, s | calls for each attempt | failed attempts |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (tasks, limit), found in one_pools.items():
        lines.append(
            f"| {tasks} | {limit} | {found.longest_wait_seconds:.0f} | {found.calls_per_task:.1f} "
            f"| {found.failed} of {found.ended + found.failed} |"
        )
    return "\n".join(lines)


def _after(outcome: Outcome) -> Sequence[Bin]:
    return [each for each in outcome.bins if each.begin >= EVENT_SECONDS]


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter == "-")


def _draw(outcome: Outcome, title: str, path: object) -> None:
    bins = [each for each in outcome.bins if each.begin >= EVENT_SECONDS - 60]
    times = [each.begin - EVENT_SECONDS for each in bins]
    with rc_context({"svg.hashsalt": "updraft", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11, 2.9))
        ended, waits, calls = figure.subplots(1, 3)
        _line(ended, times, [each.throughput for each in bins], _MEDIAN, "exchanges a second")
        _line(ended, times, [each.ready for each in bins], _OTHER, "ready pods")
        _line(waits, times, [each.median_wait for each in bins], _MEDIAN, "median wait, s")
        _line(waits, times, [each.p99_wait for each in bins], _P99, "99 % wait, s")
        _line(calls, times, [each.calls_per_second for each in bins], _MEDIAN, "calls a second")
        _line(calls, times, [each.waiting for each in bins], _P99, "waiting exchanges")
        for axes in (ended, waits, calls):
            axes.axvline(0.0, color="#333333", linewidth=1, linestyle="--")
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xlabel("seconds after the event", fontsize=8)
            axes.set_ylim(bottom=0)
            axes.legend(fontsize=8, frameon=False)
        figure.suptitle(title, fontsize=11)
        figure.tight_layout()
        figure.savefig(str(path), metadata={"Date": None})


def _line(axes: Axes, times: Sequence[float], values: Sequence[float], color: str, label: str) -> None:
    axes.plot(times, values, color=color, label=label, linewidth=1.5)
