# SPDX-License-Identifier: Apache-2.0
"""Pools whose processes are stopped, killed and terminated at the worst moments."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from other_processes import eventually
from pyarrow import flight
from served_pool import (
    ECHO,
    HANG_SECONDS,
    SCHEMA,
    Server,
    batch,
    finish,
    front_command,
    serves_again,
    workers_command,
)


class Started:
    """Command that the test does not wait for, with its log."""

    def __init__(self, directory: Path, command: Sequence[str]) -> None:
        self.log_file = directory / f"{time.monotonic_ns()}.log"
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log)

    def logs(self, words: str) -> bool:
        return words in self.log_file.read_text()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()


def outcome_of_echo(client: flight.FlightClient) -> str:
    writer, reader = client.do_exchange(ECHO)
    writer.begin(SCHEMA)
    writer.write_batch(batch(1))
    return finish(writer, reader)


@pytest.fixture
def directory() -> Iterator[Path]:
    # Unlike pytest's, short enough for the path of a Unix socket.
    with tempfile.TemporaryDirectory(prefix="updraft-hostile-") as made:
        yield Path(made)


@pytest.fixture
def start(directory: Path) -> Iterator[Callable[..., Started]]:
    running: list[Started] = []

    def started(command: Sequence[str]) -> Started:
        running.append(Started(directory, command))
        return running[-1]

    yield started
    for each in running:
        each.process.kill()
        each.process.wait()


def test_a_supervisor_that_was_stopped_goes_on_as_if_nothing_had_been(directory: Path) -> None:
    server = Server(directory, "--workers=1")
    try:
        supervisor = psutil.Process(server.process.pid)
        supervisor.suspend()
        # Longer than the supervisor's longest wait for a signal.
        time.sleep(2.0)
        supervisor.resume()
        zygote = server.ready()["zygote"]
        psutil.Process(zygote).kill()
        server.wait_for(lambda: server.ready()["zygote"] != zygote)
        assert serves_again(server)
        assert server.stop() == 0
    finally:
        server.process.kill()
        server.process.wait()


def test_a_ready_file_that_cannot_be_written_any_more_costs_no_exchange(directory: Path) -> None:
    (directory / "announced").mkdir()
    server = Server(directory / "announced", "--workers=2")
    try:
        ready = server.ready()
        shutil.rmtree(directory / "announced")
        for worker in ready["workers"].values():
            psutil.Process(worker).kill()
        with flight.connect(f"grpc://{ready['listen']}") as client:
            outcomes = [outcome_of_echo(client) for _ in range(6)]
        # Each dead worker may fail one exchange before the front hears of its death.
        assert set(outcomes) <= {"OK", "killed"}
        assert outcomes.count("killed") <= 2
    finally:
        server.process.kill()
        server.process.wait()


def test_a_front_that_waits_for_its_workers_ends_well_when_it_is_told(
    directory: Path, start: Callable[..., Started]
) -> None:
    front = start(front_command(directory, "--workers=1"))
    eventually(lambda: front.logs("the workers' side is unreachable"))
    front.process.send_signal(signal.SIGTERM)
    # The front's own tests show that it does not wait.
    assert front.process.wait(HANG_SECONDS) == 0
    assert not front.logs("pool is ready")


def test_a_front_without_a_place_for_artifacts_says_so_in_one_line(
    directory: Path, start: Callable[..., Started]
) -> None:
    (directory / "front").mkdir(mode=0o700)
    (directory / "front" / "artifacts").touch()
    front = start(front_command(directory, "--workers=1"))
    assert front.process.wait(HANG_SECONDS) == 2
    assert front.logs("the directory of artifacts cannot be made")
    assert not front.logs("Traceback")


def test_a_pool_that_is_told_to_end_while_it_starts_has_not_failed(start: Callable[..., Started]) -> None:
    pool = start(Server.command("--workers=1"))
    eventually(lambda: len(pool.children()) == 2)
    pool.process.send_signal(signal.SIGTERM)
    assert pool.process.wait(HANG_SECONDS) == 0


@pytest.mark.parametrize(("half", "command"), [("front", front_command), ("workers", workers_command)])
def test_a_second_half_of_the_same_kind_is_refused_with_what_to_do(
    directory: Path, start: Callable[..., Started], half: str, command: Callable[[Path], list[str]]
) -> None:
    first = start(command(directory))
    # Workers start nothing before they have reached their front.
    eventually(lambda: first.children() or first.logs("the front cannot be reached"))
    second = start(command(directory))
    assert second.process.wait(HANG_SECONDS) == 2
    assert second.logs(f"the {half} of another pool")
    assert second.logs("--runtime-directory")
    assert first.process.poll() is None
