# SPDX-License-Identifier: Apache-2.0
"""A local pool in a real Jupyter kernel: one for a classic session, and one for Spark Connect."""

from __future__ import annotations

import base64
import re
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.local.kernel import Kernel, running_kernel
from tests.support.carried_jar import carry_jar
from tests.support.waiting import until

_SESSION = """
import os
import signal
import time
import updraft.client
import updraft.spark
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

pool = updraft.spark.local_pool(workers=1, functions="rates")
writer = updraft.spark.local_writer("tables")
builder = SparkSession.builder.config(map=pool.spark_conf() | writer.spark_conf()).config("spark.ui.enabled", "false")
spark = builder.config("spark.api.mode", "{mode}").master("local[2]").getOrCreate()

@udf("long")
def sleepy(x):
    print("asleep", flush=True)
    time.sleep(600)

@udf("string")
def rate(x):
    import rates
    return f"{{rates.RATE}} {{os.getppid()}}"

def shown():
    return spark.range(1).select(rate("id").alias("r")).first()[0].split()

one = udf(lambda x: 1, "long")
print(spark.range(1).select(one("id").alias("one")).first()[0])
print(pool.log_file)
"""

_MODULE = "from updraft import function\nRATE = {rate}\n@function\ndef rated(x: int) -> int:\n    return x * RATE\n"


@dataclass
class Notebook:
    """Kernel whose first cell has made a local pool and a session, for all tests of a mode."""

    kernel: Kernel
    directory: Path
    log: Path


@pytest.fixture(scope="module", params=["classic", "connect"])
def notebook(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    directory = tmp_path_factory.mktemp("notebook")
    (directory / "rates.py").write_text(_MODULE.format(rate=1))
    (directory / "helper.py").write_text("NAME = 'of the current directory'\n")
    (directory / "tables").mkdir()
    package = carry_jar(directory / "site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(package.parent))
        with running_kernel(directory) as kernel:
            started = kernel.run(_SESSION.format(mode=request.param))
            assert not started.error, started.text
            yield Notebook(kernel, directory, Path(started.text.split()[-1]))


@pytest.fixture
def kernel(notebook: Notebook) -> Kernel:
    return notebook.kernel


@pytest.fixture(scope="module")
def kernel_of_pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """Run a kernel for the tests that need pools and no session; each stops its own."""
    directory = tmp_path_factory.mktemp("pools")
    (directory / "fails.py").write_text(_FAILS)
    (directory / "busy.py").write_text(_BUSY)
    with running_kernel(directory) as kernel:
        yield kernel


# For hooks of the kernel that know no session.
in_one_mode = pytest.mark.parametrize("notebook", ["classic"], indirect=True)


def test_the_stop_button_frees_the_worker_at_once(notebook: Notebook) -> None:
    kernel, log = notebook.kernel, notebook.log
    before = kernel.run("print(signal.getsignal(signal.SIGINT))").text
    # Repeated, because an interrupt must leave everything as it was.
    for times, action in enumerate(("collect", "show", "toPandas"), start=1):
        cell = kernel.start(f"spark.range(1).select(sleepy('id')).{action}()")
        until("the function runs", lambda times=times: log.read_text().count("asleep") == times)  # type: ignore[misc]
        kernel.interrupt()
        interrupted = kernel.finished(cell)
        assert interrupted.error == "KeyboardInterrupt", interrupted.text
        assert "another exception occurred" not in interrupted.text
        assert "while sending command" not in interrupted.text, "the call of the JVM was answered first"
        until("its worker is free", lambda times=times: log.read_text().count("outcome=cancelled") == times)  # type: ignore[misc]
        after = kernel.run("print(spark.range(1).select(one('id').alias('one')).first()[0])")
        assert after.text.strip().endswith("1"), after.text
    assert kernel.run("print(signal.getsignal(signal.SIGINT))").text == before


def test_what_functions_print_appears_in_their_cell(kernel: Kernel) -> None:
    said = """
@udf("long")
def says(x):
    for line in range(30):
        print(f"line {line} of {x}")
    return x

spark.range(10, numPartitions=1).select(says("id")).collect()
"""
    cell = kernel.run(said).text
    assert "partition 0] line 29 of 0\n" in cell
    assert re.search(r"^\[stage [\d.]+, partition 0\] line 0 of 0$", cell, re.MULTILINE)
    assert cell.count("] line ") == 100
    assert "[200 more lines: pool.log(None) has all]" in cell
    assert kernel.run("print(pool.log(None).count(' of 9'))").text == "30\n"
    logs = """
@udf("long")
def logs(x):
    import logging

    logging.getLogger("mine").warning("unusual: %s", x)
    return x

spark.range(1).select(logs("id")).collect()
"""
    assert re.search(r"^\[stage [\d.]+, partition \d+\] unusual: 0$", kernel.run(logs).text, re.MULTILINE)
    assert "line 0" not in kernel.run("1").text
    assert "line 0" not in kernel.run("lines, pool.output_lines = pool.output_lines, 0\nprint('off')").text
    assert "line 0" not in kernel.run("spark.range(1).select(says('id')).collect()").text
    kernel.run("pool.output_lines = lines")


_WRITTEN = """
from pyspark.sql.functions import pandas_udf

fahrenheit = pandas_udf(lambda celsius: celsius * 1.8 + 32, "double")
frame = spark.range(100).select(fahrenheit("id").alias("f"))
frame.explain()
frame.write.format("updraft-parquet").save(os.path.abspath("tables/degrees"))
print("sum", spark.read.parquet(os.path.abspath("tables/degrees")).agg({"f": "sum"}).first()[0])
"""
_SEEN = """
log = str(pool.log_file)

def seen(value):
    import helper

    try:
        readable = bool(open(log))
    except PermissionError:
        readable = False
    return f"{helper.NAME} {readable}"

print(spark.range(1).select(udf(seen)("id")).first()[0])
"""


def test_the_udf_runs_on_the_pool_and_the_file_goes_through_the_writer(kernel: Kernel) -> None:
    written = kernel.run(_WRITTEN).text
    assert "FlightEvalPython" in written
    assert f"sum {sum(range(100)) * 1.8 + 32 * 100}" in written
    # As on stock PySpark. Functions cannot read the pool's log.
    assert "of the current directory False" in kernel.run(_SEEN).text


_SLOW = """
@udf("long")
def slow(x):
    time.sleep(0.02)
    return x

counted = spark.range(200, numPartitions=4).select(slow("id").alias("x")).agg({"x": "count"}).first()[0]
print(counted)
"""


def test_a_cell_shows_the_progress_of_its_functions(kernel: Kernel) -> None:
    output = kernel.run(_SLOW)
    assert "200" in output.text
    lines = [shown["text/plain"] for shown in output.shown]
    assert lines, output.text
    assert all(line.startswith("updraft: ") and " of 1 workers busy, " in line for line in lines)
    assert any("1 of 1 workers busy" in line for line in lines)
    assert all(int(line.split()[1]) <= 500 for line in lines)
    # A local Spark Connect server runs in a JVM of this process, so its tasks are counted too.
    assert any(" of 4 tasks" in line for line in lines)


@in_one_mode
def test_a_cell_shows_no_progress_if_no_function_runs_or_if_it_is_turned_off(kernel: Kernel) -> None:
    assert kernel.run("time.sleep(4)").shown == []
    assert kernel.run(f"pool.shows_progress = False\n{_SLOW}").shown  # the cell itself had begun before
    assert kernel.run(_SLOW).shown == []
    kernel.run("pool.shows_progress = True")


@in_one_mode
def test_edited_modules_are_loaded_again_and_a_restart_keeps_the_session(notebook: Notebook) -> None:
    kernel, module = notebook.kernel, notebook.directory / "rates.py"
    assert kernel.run("print(shown()[0])").text.strip().endswith("1")

    module.write_text(_MODULE.format(rate=22))
    edited = kernel.run("print(shown()[0])")
    assert "updraft: the pool has loaded rates.py again" in edited.text
    assert edited.text.strip().endswith("22"), edited.text
    called = "print(updraft.client.call('rated', {'x': [2]}, endpoint=pool.endpoint)['result'])"
    assert "44" in kernel.run(called).text

    module.write_text("RATE =")
    broken = kernel.run("print(shown()[0])")
    assert "rates.py changed, and the pool still has the old code: see pool.log()" in broken.text
    assert broken.text.strip().endswith("22"), broken.text
    began_at = time.monotonic()
    (notebook.directory / "other.py").touch()
    still_broken = kernel.run("print(shown()[0])")
    assert "other.py changed, and the pool still has the old code: see pool.log()" in still_broken.text
    assert time.monotonic() - began_at < 30, "a second refusal for the same reason is noticed too"

    endpoint = kernel.run("print(pool.endpoint)").text
    module.write_text(_MODULE.format(rate=333))
    restarted = kernel.run("pool.restart(workers=2); print(shown()[0])")
    assert restarted.text.strip().endswith("333"), restarted.text
    assert kernel.run("print(pool.endpoint)").text == endpoint
    until("it has two workers", lambda: " of 2 busy" in _shown_pool(kernel))
    kernel.run("pool.restart(workers=1)")


_FAILS = """
from updraft import function

@function(version="7")
def fails(x: int) -> int:
    raise ValueError("<b>why")
"""


def test_a_cell_shows_the_pool(kernel_of_pools: Kernel) -> None:
    kernel = kernel_of_pools
    kernel.run("import updraft.spark\npool = updraft.spark.local_pool(workers=1, functions='fails')")
    kernel.run("import updraft.client; updraft.client.call('fails', {'x': [1]}, endpoint=pool.endpoint)")
    for part in (
        "ready, ",
        "0 of 1 busy, 0 calls waiting",
        "MiB in ",
        "fails 7",
        "fails: ValueError: &lt;b&gt;why",
    ):
        until(f"the cell shows {part}", lambda part=part: part in _shown_pool(kernel))  # type: ignore[misc]
    link = re.search(r'<a href="http://([^:]+):([^@]+)@([^"]+)"', _shown_pool(kernel))
    assert link is not None
    login = base64.b64encode(f"{link[1]}:{link[2]}".encode()).decode()
    request = urllib.request.Request(f"http://{link[3]}", headers={"Authorization": f"Basic {login}"})
    with urllib.request.urlopen(request, timeout=60) as page:
        assert b"Updraft" in page.read()
    assert not kernel.run("import os, signal; os.kill(pool._process.pid, signal.SIGKILL); pool._process.wait()").error
    ended = "updraft: the pool has ended, and queries wait for it: pool.restart() starts it again"
    assert ended in kernel.run("1").text
    assert ended not in kernel.run("1").text, "it is said once"
    assert "the pool has ended" in _shown_pool(kernel)
    kernel.run("pool.restart()")
    until("the new pool is shown", lambda: "ready, " in _shown_pool(kernel))
    kernel.run("pool.stop()")


def test_a_cell_that_runs_twice_says_that_it_started_another_pool(kernel_of_pools: Kernel) -> None:
    kernel = kernel_of_pools
    cell = "import updraft.spark\npool = updraft.spark.local_pool(workers=1)"
    said = "updraft: the pool of an earlier local_pool() call still runs, until you call its stop() or the kernel ends"
    assert said not in kernel.run(cell).text
    kernel.run("first = pool")
    assert said in kernel.run(cell).text
    assert said not in kernel.run("first.stop(); pool.stop()\n" + cell).text
    kernel.run("pool.stop()")


def _shown_pool(kernel: Kernel) -> str:
    """Return the state of the pool, which its front updates every two seconds."""
    return str(kernel.run("pool").shown[0]["text/html"])


_BUSY = """
import time
from updraft import function

@function
def works(seconds: float) -> float:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        computes()
    return seconds

def computes():
    return sum(range(2000))
"""

_CALLED = """
import threading
import updraft.client
import updraft.spark

pool = updraft.spark.local_pool(workers=1, functions="busy")
done = threading.Event()

def call():
    while not done.is_set():
        updraft.client.call("works", {"seconds": [1.0]}, endpoint=pool.endpoint)

calling = threading.Thread(target=call)
calling.start()
while not pool.status()["workers"]["busy"]:
    pass
"""


def test_a_cell_shows_where_a_running_function_spends_its_time(kernel_of_pools: Kernel) -> None:
    kernel = kernel_of_pools
    assert not (started := kernel.run(_CALLED)).error, started.text
    for name in ("'works'", "None"):
        # The cell also shows progress, before the profile.
        *_, shown = kernel.run(f"pool.profile({name}, seconds=1)").shown
        assert shown["text/html"].startswith("<svg ")
        titles = re.findall(r"<title>(.*?): \d+ samples", shown["text/html"])
        assert titles[0] == "works"
        assert any(title.startswith("computes (") for title in titles)
    *_, shown = kernel.run("pool.profile('other', seconds=0.1)").shown
    assert shown["text/html"] == "<b>no call ran while the pool sampled</b>"
    assert not (ended := kernel.run("done.set(); calling.join(); pool.stop()")).error, ended.text
