# SPDX-License-Identifier: Apache-2.0
"""File operations that functions do on stock still work in a worker that may write only to its own files."""

import inspect
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pool_driver import Zygotes, batches_of, exchange, running_pool
from pyspark.sql.types import StringType
from session_commands import scalar_arrow

from updraft_server.ipc.worker_settings import WorkerSettings


@pytest.fixture(scope="module")
def zygotes() -> Iterator[Zygotes]:
    """Start a zygote whose workers may write only to their own files."""
    with tempfile.TemporaryDirectory(prefix="updraft-honest-") as directory:
        runtime = Path(directory) / "runtime"
        runtime.mkdir()
        settings = WorkerSettings(allow_session_functions=True, hidden_paths=(str(runtime),))
        started = Zygotes(runtime, settings)
        yield started
        started.stop()


def temporary_files():
    import tempfile

    with tempfile.TemporaryDirectory() as directory, tempfile.NamedTemporaryFile("w+") as named:
        Path(directory, "file").write_text("x")
        named.write("x")
        assert str(Path(named.name).parent) == os.environ["TMPDIR"]


def relative_paths():
    Path("made/deeper").mkdir(parents=True)
    Path("made/file").write_text("x")
    Path("made/file").rename("made/deeper/moved")
    os.link("made/deeper/moved", "linked")
    Path("link").symlink_to("linked")
    assert Path("link").read_text() == "x"


def programs():
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["sh", "-c", "echo x > made; cat made > /dev/null"], cwd=directory, check=True)
        assert subprocess.check_output(["cat", "made"], cwd=directory) == b"x\n"
        subprocess.run(["sh", "-c", "kill -TERM $$"], check=False)


def signals_to_children():
    import signal
    import subprocess

    child = subprocess.Popen(["sleep", "1000"])
    child.send_signal(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


def sqlite():
    import sqlite3

    with sqlite3.connect("database") as connection:
        connection.execute("create table t (x)")
        connection.execute("insert into t values (1)")
    connection.close()


def figures():
    import tempfile

    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.plot([1, 2])
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        pyplot.savefig(file.name)
        assert Path(file.name).stat().st_size > 0


def parallel_loops():
    import joblib
    import numpy as np

    data = np.zeros(1_000_000)
    sums = joblib.Parallel(n_jobs=2)(joblib.delayed(np.sum)(data) for _ in range(4))
    assert sums == [0.0] * 4
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


def cached_results():
    import joblib

    memory = joblib.Memory("cache", verbose=0)
    assert memory.cache(abs)(-1) == 1


def models():
    import numpy as np
    from joblib.externals.loky import get_reusable_executor
    from sklearn.ensemble import RandomForestRegressor

    x = np.arange(100.0).reshape(-1, 1)
    RandomForestRegressor(n_estimators=4, n_jobs=2).fit(x, x[:, 0]).predict(x)
    get_reusable_executor().shutdown(wait=True)


def queues_and_locks():
    import multiprocessing

    context = multiprocessing.get_context("fork")
    queue, lock = context.Queue(), context.Lock()

    def work():
        with lock:
            queue.put(1)

    children = [context.Process(target=work) for _ in range(2)]
    for child in children:
        child.start()
    assert [queue.get() for _ in children] == [1, 1]
    for child in children:
        child.join()
    queue.close()
    queue.join_thread()


def managers():
    import multiprocessing

    with multiprocessing.get_context("fork").Manager() as manager:
        shared = manager.dict()
        shared["x"] = 1
        assert dict(shared) == {"x": 1}


def shared_memory():
    from multiprocessing import shared_memory

    memory: Any = shared_memory.SharedMemory(create=True, size=4096)
    again: Any = shared_memory.SharedMemory(memory.name)
    again.buf[0] = 7
    assert memory.buf[0] == 7
    again.close()
    memory.close()
    memory.unlink()


def devices():
    with Path("/dev/null").open("w") as null, Path("/dev/urandom").open("rb") as random:
        null.write("x")
        assert len(random.read(4)) == 4


def the_system():
    import platform

    import psutil

    psutil.Process().memory_info()
    psutil.cpu_percent()
    psutil.disk_usage(".")
    platform.freedesktop_os_release()
    assert list(Path("/usr").iterdir())
    assert Path("/etc/passwd").read_text()
    assert list(Path("/proc/self/fd").iterdir())


def sockets_of_its_own():
    import socket
    import threading

    for address in ("own.sock", "\0updraft-own"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(address)
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=server.accept)
        accepting.start()
        socket.create_connection(server.getsockname()).close()
        accepting.join()


def modules():
    import importlib
    import sys

    Path("own_module.py").write_text("x = 1\n")
    sys.path.insert(0, str(Path.cwd()))
    assert importlib.import_module("own_module").x == 1
    assert importlib.import_module("xmlrpc.client")


def library_caches():
    for name in ("NUMBA_CACHE_DIR", "TRITON_CACHE_DIR", "JOBLIB_TEMP_FOLDER"):
        Path(os.environ[name]).mkdir(parents=True, exist_ok=True)
        Path(os.environ[name], "entry").write_text("x")


def caches_below_the_home_directory():
    for name in ("~/.cache/a-library-of-mine", "~/nltk_data", "~/.local/share/another"):
        made = Path(name).expanduser()
        made.mkdir(parents=True)
        (made / "list.json").write_text("[]")


HONEST = [
    temporary_files,
    relative_paths,
    programs,
    signals_to_children,
    sqlite,
    figures,
    parallel_loops,
    cached_results,
    models,
    queues_and_locks,
    managers,
    shared_memory,
    devices,
    the_system,
    sockets_of_its_own,
    modules,
    library_caches,
    caches_below_the_home_directory,
]


def running(function: Callable[[], None]) -> Any:
    # As source text, because workers do not have the tests' modules.
    source = inspect.getsource(function)

    def run(x):
        import pyarrow as pa

        scope: dict[str, Any] = {"os": __import__("os"), "Path": __import__("pathlib").Path}
        exec(source, scope)
        scope[function_name]()
        return pa.array(["done"])

    function_name = function.__name__
    return scalar_arrow(run, StringType())


@pytest.mark.parametrize("function", HONEST, ids=lambda function: function.__name__)
async def test_honest_functions_work_as_on_stock(zygotes: Zygotes, function: Callable[[], None]) -> None:
    async with running_pool(zygotes) as pool:
        reply = await exchange(pool, batches_of([1]), running(function))
        assert reply.error is None, reply.error
        assert reply.table.column(0).to_pylist() == ["done"]


async def test_each_worker_begins_in_a_directory_of_its_own_in_which_it_sees_nothing(zygotes: Zygotes) -> None:
    def where(x):
        import os
        from pathlib import Path

        import pyarrow as pa

        here = Path.cwd()
        return pa.array([f"{here} {os.environ['TMPDIR']} {list(here.glob('[!.]*'))} {oct(here.stat().st_mode)}"])

    found = []
    for _ in range(2):
        async with running_pool(zygotes) as pool:
            [worker] = [info.worker for info in pool.workers]
            reply = await exchange(pool, batches_of([1]), scalar_arrow(where, StringType()))
            found.append(reply.table.column(0)[0].as_py())
            path = zygotes.scratch / worker
            assert found[-1] == f"{path} {path} [] 0o40700"
    assert len(set(found)) == 2
