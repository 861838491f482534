# SPDX-License-Identifier: Apache-2.0
"""Commands `updraft status`, `functions` and `drain` for a service that is named by its endpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.certificates import Authority
from tests.support.pool import LocalPool
from tests.support.waiting import until
from tests.support.web import fetched
from tests.support.writer import LocalWriter


def test_a_pool_is_shown_with_health_load_and_versions(pool: LocalPool, updraft: Run) -> None:
    shown = updraft("status", "--endpoint", pool.tcp_endpoint).stdout.splitlines()
    assert shown[0].split() == ["ENDPOINT", "HEALTH", "STATE", "LOAD", "VERSIONS", "SANDBOX", "CERTIFICATE"]
    assert "serving  ready  0 of 1 busy, 0 waiting" in shown[1]


def test_a_writer_is_shown_with_its_quota(writer: LocalWriter, updraft: Run) -> None:
    status = json.loads(updraft("status", "--endpoint", writer.tcp_endpoint, "--output", "json").stdout)
    assert (status["health"], status["status"]["open_files"]) == ("serving", 0)


def test_a_writer_says_its_state_beside_its_metrics_too(writer: LocalWriter) -> None:
    status = json.loads(fetched(f"http://{writer.metrics_address}/status.json")[0])
    assert (status["state"], status["health"]["arrow.flight.protocol.FlightService"]) == ("ready", True)


def test_tls_and_a_token_are_used_and_the_certificates_last_day_is_shown(
    careful_pool: LocalPool, authority: Authority, token_file: Path, updraft: Run
) -> None:
    client = authority.identity("cli")
    endpoint = f"grpc+tls://localhost:{careful_pool.tcp_address.rpartition(':')[2]}"
    options = [
        *("--ca-file", str(authority.certificate), "--token-file", str(token_file)),
        *("--certificate-file", str(client.certificate), "--key-file", str(client.key)),
    ]
    answered = updraft("status", "--endpoint", endpoint, "--output", "json", *options)
    assert json.loads(answered.stdout)["certificate"]["days_left"] > 14, answered.stderr
    refused = updraft("status", "--endpoint", endpoint, *options[:2], *options[4:])
    assert (refused.returncode, "token" in refused.stderr) == (1, True)


def test_the_layers_of_a_pools_sandbox_are_listed(pool: LocalPool, updraft: Run) -> None:
    status = json.loads(updraft("status", "--endpoint", pool.tcp_endpoint, "--output", "json").stdout)["status"]
    names = {
        "read-only-files",
        "shared-memory",
        "terminals",
        "seccomp",
        "capabilities",
        "hidden-memory",
        "landlock",
        "landlock-scopes",
        "restricted",
    }
    assert status["sandbox"].keys() == names
    layers = ", ".join(name for name, lack in status["sandbox"].items() if not lack)
    assert layers in updraft("status", "--endpoint", pool.tcp_endpoint).stdout


def test_functions_are_listed(pool: LocalPool, updraft: Run) -> None:
    (found,) = json.loads(updraft("functions", "--endpoint", pool.tcp_endpoint, "--output", "json").stdout)
    assert [function["name"] for function in found["functions"]] == ["echo"]
    assert found["session_functions_allowed"]
    shown = updraft("functions", "--endpoint", pool.tcp_endpoint).stdout
    assert "functions that Spark sessions ship are allowed" in shown


def test_what_cannot_be_called_is_listed_with_the_reason(updraft: Run) -> None:
    with LocalPool(workers=1, arguments=["--functions", "a_module_that_nobody_has"]) as pool:
        (found,) = json.loads(updraft("functions", "--endpoint", pool.tcp_endpoint, "--output", "json").stdout)
        faults = {function["name"]: function["fault"] for function in found["functions"]}
        assert "No module named 'a_module_that_nobody_has'" in faults["a_module_that_nobody_has"]
        assert faults["echo"] == ""
        shown = updraft("functions", "--endpoint", pool.tcp_endpoint).stdout
        assert "cannot be called: the module 'a_module_that_nobody_has' of --functions cannot be imported" in shown
        until("the page says so", lambda: "cannot be imported" in pool.page("/status")[0], timeout_seconds=60)


def test_a_drained_service_ends_in_order(updraft: Run) -> None:
    with LocalPool(workers=1, arguments=["--allow-remote-drain"]) as pool:
        assert updraft("drain", "--endpoint", pool.tcp_endpoint).returncode == 0
        assert pool.wait(timeout_seconds=60) == 0


def test_a_service_that_is_not_drained_from_afar_says_what_to_do(
    pool: LocalPool, writer: LocalWriter, updraft: Run
) -> None:
    for endpoint in (pool.tcp_endpoint, writer.tcp_endpoint):
        refused = updraft("drain", "--endpoint", endpoint)
        assert refused.returncode == 1
        assert "the service refuses" in refused.stderr
        assert "SIGTERM" in refused.stderr
        assert "--allow-remote-drain" in refused.stderr
        assert "ready" in updraft("status", "--endpoint", endpoint).stdout


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["status", "--endpoint", "grpc://127.0.0.1:1"], 1, "the service does not answer"),
        (["status", "--endpoint", "127.0.0.1:1"], 2, "is not an endpoint"),
        (["drain"], 2, "name a pod"),
        (["doctor", "--endpoint", "grpc://a:1", "--key-file", "key"], 2, "go together"),
        (["doctor", "--conf", "endpoint=grpc://a:1"], 1, "expected spark.some.setting=value"),
        (["doctor", "--defaults", "/nowhere/spark-defaults.conf"], 1, "cannot be read: No such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(updraft: Run, arguments: list[str], status: int, says: str) -> None:
    ended = updraft(*arguments)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (status, 1)
    assert says in ended.stderr


@pytest.mark.parametrize("command", ["status", "functions", "drain", "doctor"])
def test_help_teaches_by_examples(updraft: Run, command: str) -> None:
    shown = updraft(command, "--help").stdout
    assert f"examples:\n  updraft {command}" in shown
    assert "--output {table,json}" in shown
    assert command.upper() not in shown


def test_stacks_are_for_pools_whose_operator_allows_it(pool: LocalPool, updraft: Run) -> None:
    refused = updraft("stack", "--endpoint", pool.tcp_endpoint)
    assert (refused.returncode, "--allow-remote-stacks" in refused.stderr) == (1, True)
    nameless = updraft("stack")
    assert (nameless.returncode, "name a pool with --endpoint" in nameless.stderr) == (2, True)
    with LocalPool(workers=1, arguments=["--allow-remote-stacks"]) as open_pool:
        assert updraft("stack", "--endpoint", open_pool.tcp_endpoint).stdout == "No worker is busy.\n"
        worker = next(iter(open_pool.ready["workers"]))
        shown = updraft("stack", worker, "--endpoint", open_pool.tcp_endpoint).stdout
        assert shown.startswith(f"worker {worker}\n")
        assert "most recent call first" in shown
        unknown = updraft("stack", "nobody", "--endpoint", open_pool.tcp_endpoint)
        assert (unknown.returncode, unknown.stderr) == (1, "updraft: no worker has the id 'nobody': busy are none\n")
