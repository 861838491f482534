# SPDX-License-Identifier: Apache-2.0
"""A worker's memory is unreadable even to its own user; tested as an ordinary user, because root may read all."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ordinary_users import NOBODY, can_become_an_ordinary_user, ordinary_user
from served_pool import HANG_SECONDS, Server, serves_again

pytestmark = pytest.mark.skipif(
    not can_become_an_ordinary_user(), reason="this user cannot become another one: setpriv or its rights are missing"
)


class OrdinaryServer(Server):
    """Pool of an ordinary user."""

    @staticmethod
    def command(*options: str) -> list[str]:
        return [*ordinary_user(), *Server.command(*options)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # Unlike pytest's, another user can enter this directory.
    directory = Path(tempfile.mkdtemp(prefix="updraft-hidden-"))
    if os.geteuid() == 0:
        os.chown(directory, NOBODY, NOBODY)
    running = OrdinaryServer(directory, "--workers=1", f"--runtime-directory={directory}/pool")
    yield running
    assert running.stop() == 0
    shutil.rmtree(directory)


_READS = """
import sys
try:
    open(f"/proc/{sys.argv[1]}/{sys.argv[2]}", "rb").read(1)
except PermissionError:
    print("refused")
else:
    print("read")
"""


def outcome_of_reading(pid: int, what: str) -> str:
    """Return what an unrelated process of the same user gets."""
    command = [*ordinary_user(), sys.executable, "-c", _READS, str(pid), what]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=True).stdout.strip()


def processes(server: Server) -> dict[str, int]:
    ready = server.ready()
    return {
        "supervisor": server.process.pid,
        "front": ready["front"],
        "zygote": ready["zygote"],
        "worker": next(iter(ready["workers"].values())),
    }


@pytest.mark.parametrize("process", ["supervisor", "front", "zygote", "worker"])
@pytest.mark.parametrize("what", ["mem", "environ", "maps"])
def test_a_neighbour_of_the_same_user_cannot_look_into_a_process_of_the_pool(
    server: Server, process: str, what: str
) -> None:
    assert outcome_of_reading(processes(server)[process], what) == "refused"


def test_a_neighbour_can_look_into_a_process_that_does_not_hide() -> None:
    with subprocess.Popen([*ordinary_user(), "sleep", "1000"]) as neighbour:
        # Before the exec its memory is not yet that of `sleep`.
        while "sleep" not in Path(f"/proc/{neighbour.pid}/comm").read_text():
            assert neighbour.poll() is None
        if outcome_of_reading(neighbour.pid, "maps") == "refused":
            pytest.skip("this kernel lets nobody look into another process")
        neighbour.kill()


def test_a_worker_is_killed_for_memory_before_its_zygote(server: Server) -> None:
    score = {name: int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for name, pid in processes(server).items()}
    assert score["worker"] == min(score["zygote"] + 500, 1000)
    assert score["zygote"] == score["supervisor"]


def test_a_pool_of_an_ordinary_user_whose_processes_are_hidden_serves_and_forks(server: Server) -> None:
    before = processes(server)["worker"]
    subprocess.run([*ordinary_user(), "kill", "-9", str(before)], check=True)
    server.wait_for(lambda: bool(server.ready()["workers"]) and processes(server)["worker"] != before)
    assert serves_again(server)
