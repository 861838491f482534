# SPDX-License-Identifier: Apache-2.0
"""Cluster part of docs/functions.md: a wheel's directory on a volume, `helm upgrade`, calls, and where it is shown.

tests/e2e/test_functions_page.py follows the page up to there, and tests/images builds the page's image.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyarrow import flight
from pyspark.sql import SparkSession

from tests.chart.chart import CHART
from tests.kube.cluster import NAME, Release
from tests.kube.namespace import NAMESPACE, TABLES
from tests.kube.tenants import TOKEN_FILE
from tests.support.functions_page import PAGE, VERSION_OF_THE_WHEEL, step, unpacked_wheel
from tests.support.page import block, shows
from tests.support.spark import runtime_confs
from tests.support.waiting import until
from tests.support.web import Page, fetched

_POOL = "pool-default"
_CATALOG = "spark.sql.catalog.updraft"
_PORT, _METRICS_PORT = 8815, 9825
_SECONDS, _GONE_SECONDS = 60, 180


@pytest.fixture(scope="module")
def upgraded(release: Release, tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return Helm's output once the page's functions are on the volume and every pod is ready."""
    directory = tmp_path_factory.mktemp("functions")
    unpacked_wheel(directory, into=tables / VERSION_OF_THE_WHEEL)
    values = yaml.safe_load(block(PAGE, "yaml", "persistentVolumeClaim"))
    (volume,) = values["pools"]["default"]["podTemplate"]["spec"]["volumes"]
    volume["persistentVolumeClaim"]["claimName"] = TABLES
    (directory / "functions.yaml").write_text(yaml.safe_dump(values))
    printed = release.upgrade_with_file(directory / "functions.yaml")
    until("the old pods are gone", lambda: not _leaving(release), timeout_seconds=_GONE_SECONDS)
    yield printed
    release.upgrade()


def _leaving(release: Release) -> list[str]:
    return [pod.metadata.name for pod in release.pods(_POOL) if pod.metadata.deletion_timestamp]


def _as_the_page_has_it(text: str) -> str:
    return re.sub(rf"\b{NAME}\b", "updraft", text)


def _rows(text: str) -> list[list[str]]:
    """Return the words of each line about the pool."""
    return [line.split() for line in text.splitlines() if line.startswith(f"updraft/{_POOL}")]


def test_helm_says_what_the_page_shows(upgraded: str) -> None:
    typed = step("helm upgrade")
    assert str(CHART).endswith(typed.text.split()[3])
    assert shows(typed.shown, _as_the_page_has_it(upgraded))


def test_the_pools_functions_are_listed_as_the_page_shows(upgraded: str) -> None:
    command = [str(Path(sys.executable).with_name("updraft")), "functions", "--namespace", NAMESPACE]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr
    assert _rows(_as_the_page_has_it(ran.stdout)) == _rows(step("updraft functions --namespace").shown)


def test_the_status_page_of_each_pod_lists_them(release: Release, upgraded: str) -> None:
    pods = release.pods(_POOL)
    assert len(pods) == release.wanted_pods(_POOL)
    for pod in pods:
        html, _ = fetched(f"http://{pod.status.pod_ip}:{_METRICS_PORT}/status")
        found = [(row[0], row[1], row[-1]) for row in Page(html).rows if len(row) == 4]
        for function in (("greeting", "1"), ("greeting", "2"), ("shout", "1"), ("initials", "1")):
            assert (*function, "healthy") in found


def _called(release: Release, column: pa.Array, *path: str) -> list[str]:
    """Call with a plain Flight client that has only an address and a token."""
    header = (b"authorization", f"Bearer {release.token(_POOL)}".encode())
    options = flight.FlightCallOptions(headers=[header], timeout=_SECONDS)
    batch = pa.record_batch({"name": column})
    with flight.connect(f"grpc://{release.cluster_ip(_POOL)}:{_PORT}") as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(*path), options)
        with writer:
            writer.begin(batch.schema)
            writer.write_batch(batch)
            writer.done_writing()
            results: list[str] = reader.read_all().column("result").to_pylist()
    return results


def test_a_client_of_flight_calls_the_newest_version_and_one_that_it_pins(release: Release, upgraded: str) -> None:
    names = pa.array(["Ada", "Grace"])
    assert _called(release, names, "greeting") == ["Hello, ADA!", "Hello, GRACE!"]
    assert _called(release, names, "greeting", "1") == ["Hello, Ada!", "Hello, Grace!"]


def test_a_client_of_flight_is_told_of_a_wrong_type(release: Release, upgraded: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match="argument 'name' of function 'initials' is string, not int64"):
        _called(release, pa.array([1815]), "initials")


def test_the_query_of_the_page_prints_what_it_shows(
    spark: SparkSession, release: Release, upgraded: str, tables: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    query = step("people = ")
    # The driver, which is not a pod, and the executors find the same file.
    token_file = tables / "token-of-the-pool"
    token_file.write_text(release.token(_POOL))
    confs = {_CATALOG: "io.updraft.spark.FunctionCatalog", TOKEN_FILE: str(token_file)}
    with runtime_confs(spark, confs):
        exec(compile(query.text, "functions.md", "exec"), {"spark": spark})
    assert shows(query.shown, capfd.readouterr().out)
