# SPDX-License-Identifier: Apache-2.0
"""Operations of functions on stock Spark work in a worker, whatever its sandbox refuses."""

import functools
import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from pool_driver import Zygotes, running_pool
from pyspark import cloudpickle
from session_commands import said

# Workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def a_child_is_terminated():
    with subprocess.Popen(["sleep", "1000"]) as child:
        child.terminate()
        return child.wait()


def a_group_is_killed():
    with subprocess.Popen("sleep 1000 & sleep 1000", shell=True, start_new_session=True) as child:
        os.killpg(child.pid, 9)
        return child.wait()


def a_shell_runs():
    return subprocess.run("echo $((6 * 7)) | cat", shell=True, capture_output=True, text=True).stdout.strip()


def asyncio_runs_a_program():
    import asyncio

    async def run():
        child = await asyncio.create_subprocess_exec("sleep", "1000")
        child.kill()
        return await child.wait()

    return asyncio.run(run())


def processes_share_locks_queues_and_memory(method):
    import multiprocessing
    from multiprocessing.shared_memory import SharedMemory

    context = multiprocessing.get_context(method)
    memory = SharedMemory(create=True, size=8)
    queue, lock = context.Queue(), context.Lock()
    with lock:
        child = context.Process(target=queue.put, args=(memory.name,))
        child.start()
        told = queue.get(timeout=60) == memory.name
        child.join()
    with context.Pool(2) as pool:
        total = sum(pool.map(abs, range(-10, 10)))
    stuck = context.Process(target=__import__("time").sleep, args=(1000,))
    stuck.start()
    stuck.terminate()
    stuck.join()
    memory.close()
    memory.unlink()
    return told, total, stuck.exitcode


def joblib_runs(backend):
    import joblib

    return sum(joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(abs)(n) for n in range(-4, 4)))


def a_forest_grows():
    import numpy
    from sklearn.ensemble import RandomForestRegressor

    x = numpy.arange(40.0).reshape(-1, 1)
    return RandomForestRegressor(n_estimators=8, n_jobs=2, random_state=1).fit(x, x[:, 0]).predict(x).shape[0]


def threads_run():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as threads:
        return sum(threads.map(abs, range(-10, 10)))


def http_is_spoken_on_loopback():
    import threading
    import urllib.request
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Hello(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Hello)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}") as answer:
        said = answer.read().decode()
    thread.join()
    server.server_close()
    return said


def names_are_resolved():
    import socket

    return bool(socket.getaddrinfo("localhost", 80)) and bool(socket.if_nameindex())


def temporary_files_are_written():
    import tempfile

    with tempfile.TemporaryDirectory() as directory, tempfile.NamedTemporaryFile(dir=directory) as file:
        return file.write(b"four")


def columns_are_computed():
    import numpy
    import pandas
    import pyarrow.compute as compute

    values = numpy.arange(100_000) % 7
    frame = pandas.DataFrame({"key": values, "value": numpy.linalg.norm(numpy.ones((50, 50)) @ numpy.ones((50, 50)))})
    table = pa.Table.from_pandas(frame)
    return table.group_by("key", use_threads=True).aggregate([("value", "sum")]).num_rows, compute.max(values).as_py()


def a_figure_is_drawn():
    import io

    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    image = io.BytesIO()
    pyplot.plot([1, 2])
    pyplot.savefig(image)
    pyplot.close("all")
    return image.getvalue()[1:4].decode()


def a_process_sets_its_own_limits():
    import resource
    import signal
    import threading

    import psutil

    before = os.nice(0)
    os.nice(1)
    psutil.Process().nice(before + 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (900, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    psutil.Process().rlimit(psutil.RLIMIT_FSIZE, psutil.Process().rlimit(psutil.RLIMIT_FSIZE))
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    rang = threading.Event()
    signal.signal(signal.SIGALRM, lambda *_: rang.set())
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    while not rang.is_set():
        signal.pause()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.raise_signal(signal.SIGCHLD)
    return os.nice(0) - before, resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def a_child_follows_its_parent():
    import ctypes

    pr_set_pdeathsig = 1
    return ctypes.CDLL(None).prctl(pr_set_pdeathsig, 15, 0, 0, 0)


def stacks_are_dumped():
    import faulthandler
    import tempfile

    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return "stacks_are_dumped" in file.read().decode()


HONEST: dict[str, tuple[Any, str]] = {
    "terminate": (a_child_is_terminated, "-15"),
    "killpg": (a_group_is_killed, "-9"),
    "shell": (a_shell_runs, "42"),
    "asyncio": (asyncio_runs_a_program, "-9"),
    "fork": (functools.partial(processes_share_locks_queues_and_memory, "fork"), "(True, 100, -15)"),
    "spawn": (functools.partial(processes_share_locks_queues_and_memory, "spawn"), "(True, 100, -15)"),
    "forkserver": (functools.partial(processes_share_locks_queues_and_memory, "forkserver"), "(True, 100, -15)"),
    "loky": (functools.partial(joblib_runs, "loky"), "16"),
    "joblib threads": (functools.partial(joblib_runs, "threading"), "16"),
    "joblib processes": (functools.partial(joblib_runs, "multiprocessing"), "16"),
    "scikit-learn": (a_forest_grows, "40"),
    "threads": (threads_run, "100"),
    "http": (http_is_spoken_on_loopback, "hello"),
    "names": (names_are_resolved, "True"),
    "tempfile": (temporary_files_are_written, "4"),
    "pandas and pyarrow": (columns_are_computed, "(7, 6)"),
    "matplotlib": (a_figure_is_drawn, "PNG"),
    "own limits": (a_process_sets_its_own_limits, "(2, 900)"),
    "prctl": (a_child_follows_its_parent, "0"),
    "faulthandler": (stacks_are_dumped, "True"),
}


@pytest.mark.parametrize("what", HONEST)
async def test_what_honest_functions_do_works_in_a_worker(zygotes: Zygotes, what: str) -> None:
    function, outcome = HONEST[what]
    async with running_pool(zygotes) as pool:
        assert await said(pool, function) == outcome
