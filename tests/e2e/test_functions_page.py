# SPDX-License-Identifier: Apache-2.0
"""Page docs/functions.md, followed in an empty directory from its first command to its wheel: every output matches.

tests/images/test_functions.py tests its image, tests/kube/test_functions.py its cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest

from tests.support.carried_jar import carry_jar
from tests.support.functions_page import PAGE, STEPS, VERSION_OF_THE_WHEEL, build_wheel, edit, step, unpack_wheel
from tests.support.kinds_of_spark import needs_spark
from tests.support.page import Kind, Step, shows
from tests.support.paths import PYTHON
from tests.support.pool import LocalPool
from tests.support.waiting import HANG_SECONDS, until

_HOME, _ADDRESS = "/home/ada", "127.0.0.1:8815"
_SERVED = "press Ctrl-C to stop.\n"
# A busy machine starts a pool or a JVM slowly.
_SECONDS = 2 * HANG_SECONDS
_ELSEWHERE = ("pip install --quiet dist", "buildah ", "helm ", "updraft functions --namespace")
_CELLS = """
import json, sys, traceback

names = {}
for cell in sys.stdin:
    try:
        exec(compile(json.loads(cell), "<cell>", "exec"), names)
    except Exception as error:
        print("".join(traceback.format_exception_only(error)))
    print(end="\\0", flush=True)
"""

pytestmark = pytest.mark.timeout(600)


class Reader:
    """Reader who follows the page in order, each step once."""

    def __init__(self, home: Path, variables: dict[str, str]) -> None:
        self._home = self._directory = home
        self._variables = variables
        self._printed: list[str] = []
        self._address = _ADDRESS
        self._log = home.with_name("serve.log")
        self._ending = ExitStack()
        self._serving: subprocess.Popen[bytes] | None = None
        self._session: subprocess.Popen[str] | None = None

    def printed(self, number: int) -> str:
        """Return the output of a step, with the page's names for what differs; run earlier steps first."""
        while len(self._printed) <= number:
            step = STEPS[len(self._printed)]
            text = self._do(step).replace(self._address, _ADDRESS).replace(str(self._home), _HOME)
            self._printed.append(text)
        return self._printed[number]

    @property
    def directory(self) -> Path:
        """Directory that the page has led to."""
        return self._directory

    def stop(self) -> None:
        """End what was started; `updraft serve` ends well."""
        self._ending.close()
        if self._serving is not None:
            self._serving.send_signal(signal.SIGINT)
            assert self._serving.wait(_SECONDS) == 0, self._log.read_text()
            self._serving = None

    def _do(self, step: Step) -> str:
        text = step.text.replace(_ADDRESS, self._address)
        match step.kind:
            case Kind.EDIT:
                edit(self._directory, step)
                return ""
            case Kind.CELL:
                return self._run(text)
            case Kind.SERVED:
                return self._served(times=2)
            case Kind.COMMAND if text.startswith("cd "):
                self._directory /= text.removeprefix("cd ")
                return ""
            case Kind.COMMAND if text.startswith("updraft serve "):
                return self._serve(text)
            case Kind.COMMAND if text.startswith(_ELSEWHERE):
                return ""
            case Kind.COMMAND:
                return self._type(text)

    def _type(self, command: str) -> str:
        if command.startswith("pip wheel "):
            build_wheel(self._directory)
            return ""
        if command.startswith("pip install "):
            unpack_wheel(self._directory, into=command.split()[-2])
            return ""
        ran = subprocess.run(
            ["bash", "-eu", "-c", command],
            cwd=self._directory,
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def _serve(self, command: str) -> str:
        with self._log.open("wb") as log:
            self._serving = subprocess.Popen(
                [*command.split(), "--port", str(_free_port())],
                cwd=self._directory,
                env=self._variables,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        printed = self._served(times=1)
        self._address = re.findall(r"grpc://(\S+)", printed)[0]
        return printed

    def _served(self, *, times: int) -> str:
        """Wait until `updraft serve` has begun to serve this many times, and return its output since the last time."""

        def served() -> bool:
            assert self._serving is not None
            assert self._serving.poll() is None, self._log.read_text()
            return self._log.read_text().count(_SERVED) == times

        until("it serves", served, timeout_seconds=_SECONDS)
        return self._log.read_text().split(_SERVED)[times - 1] + _SERVED

    def _run(self, cell: str) -> str:
        if self._session is None:
            self._session = self._ending.enter_context(
                subprocess.Popen(
                    [PYTHON, "-c", _CELLS],
                    cwd=self._directory,
                    env=self._variables,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
        assert self._session.stdin is not None
        assert self._session.stdout is not None
        self._session.stdin.write(json.dumps(cell) + "\n")
        self._session.stdin.flush()
        return "".join(iter(lambda: self._character(), "\0"))

    def _character(self) -> str:
        assert self._session is not None
        assert self._session.stdout is not None
        character = self._session.stdout.read(1)
        assert character, "Python has ended"
        return character


def _free_port() -> int:
    """Return a free port of four digits, as wide as the page's."""
    for port in range(8816, 10_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, stock_only: bool) -> Iterator[Reader]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    directory = tmp_path_factory.mktemp("page")
    (directory / "home").mkdir()
    (directory / "conf").mkdir()
    (directory / "conf/spark-defaults.conf").write_text("spark.ui.enabled false\nspark.ui.showConsoleProgress false\n")
    carry_jar(directory / "site")
    variables = {
        **os.environ,
        "PATH": f"{PYTHON.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(directory / "site"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "SPARK_CONF_DIR": str(directory / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    reader = Reader(directory / "home", variables)
    try:
        yield reader
    finally:
        reader.stop()


_HERE = [number for number, each in enumerate(STEPS) if not each.text.startswith(_ELSEWHERE)]


@pytest.mark.parametrize("number", _HERE, ids=[f"{STEPS[number].kind.name} {number}" for number in _HERE])
def test_a_step_prints_what_the_page_shows(reader: Reader, number: int) -> None:
    done, printed = STEPS[number], reader.printed(number)
    if "DATATYPE_MISMATCH" in done.shown:
        needs_spark((4, 0), "such words for an argument of another type")
    assert shows(done.shown, printed), f"{done.text}\nprinted\n{printed}\nand the page shows\n{done.shown}"


def test_the_directory_of_the_wheel_is_all_that_a_pool_needs(reader: Reader) -> None:
    """The chart passes the directory to workers on PYTHONPATH, with the module's name."""
    reader.printed(len(STEPS) - 1)
    place = reader.directory / "functions" / VERSION_OF_THE_WHEEL
    assert f"/opt/functions/{VERSION_OF_THE_WHEEL}}}" in PAGE.read_text()
    with (
        mock.patch.dict(os.environ, PYTHONPATH=str(place)),
        LocalPool(workers=1, session_functions="unsigned", arguments=["--functions", "my_functions"]) as pool,
    ):
        command = [str(PYTHON.with_name("updraft")), "functions", "--endpoint", pool.tcp_endpoint]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    printed = ran.stdout.replace(pool.tcp_endpoint, "updraft/pool-default")
    assert printed.split() == step("updraft functions --namespace").shown.split()


def test_a_page_that_lies_is_noticed() -> None:
    assert shows("a\n...\nb in 0.10s", "a\nmuch\nmore\nb in 3.21s")
    assert shows("error: no ... more", "error: no way to say more")
    for lie in ("a\n...\nc", "b", "a\nmuch\nb", "..."):
        assert not shows(f"{lie}\nend", "a\nmuch\nmore\nb")
