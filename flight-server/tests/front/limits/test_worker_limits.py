# SPDX-License-Identifier: Apache-2.0
"""Resources that a worker may use, and the errors about workers that used more."""

import dataclasses

import pytest

from updraft_server.front.limits.worker_limits import WorkerLimits
from updraft_server.ipc.worker_usage import ProcessLimits, WorkerUsage

LIMITS = WorkerLimits(
    memory_bytes=1000, processes=4, threads=9, scratch_bytes=500, scratch_files=3, all_memory_bytes=1500
)


@pytest.mark.parametrize("used", [{}, {"own_bytes": 1000, "processes": 4, "threads": 9, "scratch_bytes": 500}])
def test_a_worker_at_its_limits_goes_on(used: dict[str, int]) -> None:
    assert LIMITS.excess("it", WorkerUsage(10**6, "", **used)) is None


@pytest.mark.parametrize(
    ("used", "said"),
    [
        ({"own_bytes": 1001}, "it took 1001 bytes of memory.*the limit is 1000.*--worker-memory-bytes"),
        ({"processes": 5}, "it ran 5 processes, the limit is 4.*--worker-processes"),
        ({"threads": 10}, "it ran 10 threads .*, the limit is 9, .*--worker-processes"),
        ({"scratch_bytes": 501}, "it had 501 bytes in .*, the limit is 500, .*--worker-scratch-bytes"),
        ({"scratch_files": 4}, "it had 4 files in .*, the limit is 3, .*--worker-scratch-bytes"),
    ],
)
def test_a_worker_beyond_a_limit_is_told_which_and_by_how_much(used: dict[str, int], said: str) -> None:
    excess = LIMITS.excess("it", WorkerUsage(0, "", **used))
    assert excess is not None
    with pytest.raises(type(excess), match=said):
        raise excess


def test_threads_follow_from_processes_and_files_from_bytes() -> None:
    limits = WorkerLimits.effective(memory_bytes=0, processes=24, scratch_bytes=64 << 20, there_is_bytes=1000)
    assert (limits.threads, limits.scratch_files) == (384, 10_000)
    assert ProcessLimits.of(512, 0).threads == 8192
    files = [ProcessLimits.of(1, size << 30).scratch_files for size in (0, 9, 64, 1 << 20)]
    assert files == [10_000, 147_456, 1_000_000, 1_000_000]


def test_a_worker_between_exchanges_has_the_same_limits() -> None:
    assert LIMITS.excess_at_rest(WorkerUsage(10**6, "", 1000, processes=4, scratch_bytes=500)) == ""
    assert LIMITS.excess_at_rest(WorkerUsage(0, "", scratch_bytes=501)) == (
        "it had 501 bytes in the scratch directory of its worker, the limit is 500"
    )


def test_workers_between_exchanges_make_room_the_largest_first_where_that_is_enough() -> None:
    resting = {"b": WorkerUsage(0, "", 100), "c": WorkerUsage(0, "", 500), "d": WorkerUsage(0, "", 0)}

    def ending(running_bytes: int, container_bytes: int | None = None) -> list[str]:
        running = {"a": WorkerUsage(0, "", running_bytes, container_bytes=container_bytes)}
        return list(LIMITS.too_much_at_rest(running, resting))

    assert ending(900) == []
    assert ending(901) == ["c"]
    assert ending(1401) == ["c", "b"]
    # Something else in the container used memory at the measurement.
    resting["c"] = resting["c"]._replace(container_bytes=10)
    assert ending(1000, container_bytes=1601) == ["c"]
    assert ending(1000, container_bytes=1500) == []
    # Then the largest worker with an exchange is ended.
    assert ending(1501) == []
    assert LIMITS.too_much_at_rest({}, {**resting, "e": WorkerUsage(0, "", 901)}) == {
        "e": "it holds 901 bytes of memory, and others need them"
    }


@pytest.mark.parametrize(
    ("stored", "room_bytes", "ending"),
    [
        # 85% of the 500 bytes that one worker may use, or of the available memory.
        ((125, 300), 10_000, []),
        ((126, 300), 10_000, ["c"]),
        ((100, 110), 40, []),
        ((100, 110), 35, ["c"]),
        ((400, 26), 10_000, ["c"]),
        # It needs more than the others could free.
        ((500, 26), 10_000, []),
    ],
)
def test_scratch_files_between_exchanges_leave_room_on_the_volume(
    stored: tuple[int, int], room_bytes: int, ending: list[str]
) -> None:
    running = {"a": WorkerUsage(0, "", scratch_bytes=stored[0], scratch_room_bytes=room_bytes)}
    # There was less room at the measurement.
    resting = {
        "b": WorkerUsage(0, "", scratch_bytes=0, scratch_room_bytes=0),
        "c": WorkerUsage(0, "", scratch_bytes=stored[1], scratch_room_bytes=0),
    }
    assert list(LIMITS.too_much_at_rest(running, resting)) == ending
    if ending:
        reason = f"it has {stored[1]} bytes in its scratch directory, and others need room"
        assert LIMITS.too_much_at_rest(running, resting) == {"c": reason}


@pytest.mark.parametrize(
    ("stored_bytes", "free_bytes", "ending"),
    [
        # A worker may store 500 bytes: 200 of them are in unnamed files.
        (230, 70, ["hides"]),
        (0, 70, ["hides"]),
        (230, 80, []),
        # All 500 bytes are in named files.
        (430, 70, ["stores"]),
    ],
)
def test_room_that_no_stored_file_explains_is_taken_back_from_the_last_session(
    stored_bytes: int, free_bytes: int, ending: list[str]
) -> None:
    measured = {"runs": WorkerUsage(0, "", scratch_room_bytes=free_bytes)}
    resting = {
        "stores": WorkerUsage(0, "", scratch_bytes=stored_bytes),
        "hides": WorkerUsage(0, ""),
        "registered": WorkerUsage(0, ""),
    }
    sessions = ["stores", "hides"]
    assert list(LIMITS.too_much_at_rest(measured, resting, sessions)) == ending
    assert "hides" not in LIMITS.too_much_at_rest(measured, resting, [])


def test_a_large_volume_is_full_when_little_is_free() -> None:
    limits = dataclasses.replace(LIMITS, scratch_bytes=64 << 30)
    for free_bytes, is_full in ((1 << 30, False), (128 << 20, True)):
        measured = {"a": WorkerUsage(0, "", scratch_room_bytes=free_bytes)}
        assert bool(limits.too_much_at_rest(measured, {"b": WorkerUsage(0, "")}, ["b"])) is is_full


def test_the_largest_goes_before_all_together_take_too_much() -> None:
    usage = {"a": WorkerUsage(0, "", 700), "b": WorkerUsage(0, "", 800)}
    assert LIMITS.largest_of_too_much(usage) is None
    assert LIMITS.largest_of_too_much({**usage, "c": WorkerUsage(0, "", 1)}) == "b"
    assert LIMITS.largest_of_too_much({}) is None
    shared = {"a": WorkerUsage(0, "", 1400, container_bytes=1500), "b": WorkerUsage(0, "", 800, container_bytes=1500)}
    assert LIMITS.largest_of_too_much(shared) is None
    held = {worker: used._replace(container_bytes=1501) for worker, used in shared.items()}
    assert LIMITS.largest_of_too_much(held) == "a"
    assert "more than 1500 bytes of memory together; it took most, 800 bytes" in str(LIMITS.shortage("it", usage["b"]))


def test_no_memory_limit_is_a_share_of_what_there_is() -> None:
    others = {"processes": 1, "scratch_bytes": 1, "there_is_bytes": 1000}
    computed = WorkerLimits.effective(memory_bytes=0, **others)
    assert 500 < computed.memory_bytes < computed.all_memory_bytes < 1000
    assert WorkerLimits.effective(memory_bytes=5, **others).memory_bytes == 5
