# SPDX-License-Identifier: Apache-2.0
"""Manual work of a platform team: `helm test` and the command `updraft`, on two pools, one behind TLS."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from kubernetes import client, config
from pyarrow import flight

from tests.chart.chart import CHART
from tests.support.certificates import Authority
from tests.support.waiting import until
from updraft_cli.main import main

_NAMESPACE = "updraft-operations"
_JOBS = f"{_NAMESPACE}-jobs"
_RELEASE = "air"
_SECONDS = 240
_PROFILE = f"--values={CHART / 'values-small.yaml'}"
_BATCH = pa.record_batch({"_0": pa.array(range(100), pa.int64())})
_MODULE = '''
import pyarrow as pa
import pyarrow.compute as pc
from updraft import function

@function(name="prices.doubled")
def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Twice the price."""
    return pa.record_batch({"doubled": pc.multiply(batch.column(0), 2)})
'''


def _values() -> dict[str, Any]:
    return {
        "common": {
            "image": {"registry": os.environ.get("UPDRAFT_IMAGES", "localhost")},
            "drainTimeoutSeconds": 60,
        },
        "poolDefaults": {"workers": {"count": 1, "sessionFunctions": "unsigned"}},
        "pools": {
            "default": {"clientNamespaces": [_JOBS]},
            "sealed": {
                "front": {"tls": {"mode": "secret", "secretName": "sealed"}},
                "workers": {
                    "functions": {"modules": ["prices"], "configMap": "functions"},
                    "sessionFunctions": "off",
                },
            },
        },
    }


def _process(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name(program)), *arguments, "--namespace", _NAMESPACE]
    variables = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * _SECONDS, check=False, env=variables)


def _updraft(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process: a new one would spend most of its time importing Kubernetes' client."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    command = ["updraft", *arguments, "--namespace", _NAMESPACE]
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", command)
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    return subprocess.CompletedProcess(command, status, out.getvalue(), err.getvalue())


def _helm(*arguments: str) -> str:
    ran = _process("helm", *arguments, "--timeout", f"{_SECONDS}s")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _json(*arguments: str) -> Any:
    ran = _updraft(*arguments, "--output", "json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def core() -> Any:
    config.load_kube_config()
    return client.CoreV1Api()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "ca")


@pytest.fixture(scope="module", autouse=True)
def release(core: Any, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the values of the installed release."""
    directory = tmp_path_factory.mktemp("operations")
    identity = authority.identity(f"{_RELEASE}-updraft-pool-sealed.{_NAMESPACE}")
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    for namespace in (_NAMESPACE, _JOBS):
        core.create_namespace({"metadata": {"name": namespace, "labels": restricted}})
    try:
        files = {"tls.crt": identity.certificate, "tls.key": identity.key, "ca.crt": authority.certificate}
        secret = {
            "metadata": {"name": "sealed"},
            "stringData": {name: file.read_text() for name, file in files.items()},
        }
        core.create_namespaced_secret(_NAMESPACE, secret)
        functions = {"metadata": {"name": "functions"}, "data": {"prices.py": _MODULE}}
        core.create_namespaced_config_map(_NAMESPACE, functions)
        values = directory / "values.yaml"
        values.write_text(yaml.safe_dump(_values()))
        _helm("install", _RELEASE, str(CHART), _PROFILE, "--values", str(values), "--wait")
        yield values
    finally:
        for namespace in (_NAMESPACE, _JOBS):
            core.delete_namespace(namespace)


def _pods() -> dict[str, dict[str, Any]]:
    """Return the pods by component."""
    return {pod["component"]: pod for pod in _json("status")}


def test_helm_test_calls_each_service_and_prints_what_it_found() -> None:
    said = _helm("test", _RELEASE, "--logs")
    assert said.count("Succeeded") == said.count("No errors.") == len(_pods())


def test_a_job_in_another_namespace_has_the_token_and_reaches_the_pool(core: Any) -> None:
    name = f"{_RELEASE}-updraft-pool-default"
    own, there = (core.read_namespaced_secret(f"{name}-token", namespace) for namespace in (_NAMESPACE, _JOBS))
    assert there.data == {"token": own.data["token"]}
    hooks = yaml.safe_load_all(_process("helm", "get", "hooks", _RELEASE).stdout)
    (pod,) = (hook for hook in hooks if hook["metadata"]["name"] == f"{name}-test")
    core.create_namespaced_pod(_JOBS, {**pod, "metadata": {"name": "job"}})

    def ended() -> str | None:
        phase = str(core.read_namespaced_pod("job", _JOBS).status.phase)
        return phase if phase in ("Succeeded", "Failed") else None

    until("the job has ended", ended, timeout_seconds=_SECONDS)
    assert ended() == "Succeeded", core.read_namespaced_pod_log("job", _JOBS)


def test_pods_are_shown_with_health_load_versions_and_certificate_expiry() -> None:
    pods = _pods()
    assert list(pods) == ["pool-default", "pool-sealed", "writer"]
    assert all(pod["ready"] for pod in pods.values())
    status = pods["pool-sealed"]["status"]
    assert status["health"]["arrow.flight.protocol.FlightService"]
    assert (status["workers"]["configured"], status["versions"]["protocol"]) == (1, 1)
    shown = _updraft("status").stdout
    assert "3 of 3 pods are ready." in shown
    assert " days)" in next(line for line in shown.splitlines() if "pool-sealed" in line)


def _kubeconfig_of_a_reader(core: Any, directory: Path) -> Path:
    """Make a kubeconfig whose user may only list pods."""
    named = {"metadata": {"name": "reader"}}
    rights = client.RbacAuthorizationV1Api()
    core.create_namespaced_service_account(_NAMESPACE, named)
    rights.create_namespaced_role(
        _NAMESPACE, {**named, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}
    )
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    account = {"kind": "ServiceAccount", "name": "reader", "namespace": _NAMESPACE}
    rights.create_namespaced_role_binding(_NAMESPACE, {**named, "roleRef": role, "subjects": [account]})
    token = core.create_namespaced_service_account_token("reader", _NAMESPACE, {"spec": {"audiences": []}}).status.token
    kubeconfig = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    kubeconfig["users"] = [{**user, "user": {"token": token}} for user in kubeconfig["users"]]
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path


def test_a_missing_right_is_named_where_its_data_would_be(core: Any, tmp_path: Path) -> None:
    kubeconfig = str(_kubeconfig_of_a_reader(core, tmp_path))
    shown = _process("updraft", "status", KUBECONFIG=kubeconfig)
    assert "3 of 3 pods are ready." in shown.stdout, shown.stderr
    assert shown.stdout.count("may not get pods/proxy") == 3
    assert shown.stdout.count("may not read Secret sealed") == 1
    refused = _process("updraft", "drain", _pods()["writer"]["name"], KUBECONFIG=kubeconfig)
    assert (refused.returncode, "forbidden" in refused.stderr) == (1, True)


def test_functions_of_each_pool_are_listed() -> None:
    found = {pool["pool"]: [function["name"] for function in pool["functions"]] for pool in _json("functions")}
    assert found == {f"{_RELEASE}/pool-default": ["echo"], f"{_RELEASE}/pool-sealed": ["echo", "prices.doubled"]}


def test_a_function_of_a_config_map_runs_behind_tls(core: Any, authority: Authority) -> None:
    with _caller(core, "sealed", authority) as caller:
        exchange, replies = caller.do_exchange(
            flight.FlightDescriptor.for_path("prices.doubled"), _options(core, "sealed")
        )
        exchange.begin(_BATCH.schema)
        exchange.write_batch(_BATCH)
        assert replies.read_chunk().data.column("doubled").to_pylist() == list(range(0, 200, 2))
        exchange.close()


def test_a_drained_pod_finishes_its_exchange_and_another_takes_its_place(core: Any) -> None:
    drained = _pods()["pool-default"]["name"]
    with _caller(core, "default") as caller, ThreadPoolExecutor() as threads:
        exchange, replies = caller.do_exchange(flight.FlightDescriptor.for_path("echo"), _options(core, "default"))
        exchange.begin(_BATCH.schema)
        exchange.write_batch(_BATCH)
        replies.read_chunk()
        draining = threads.submit(_process, "updraft", "drain", drained)
        until("the pod drains", lambda: _state(drained) == "draining", timeout_seconds=_SECONDS)
        exchange.write_batch(_BATCH)
        assert replies.read_chunk().data == _BATCH
        exchange.close()
        ended = draining.result(timeout=_SECONDS)
    assert (ended.returncode, "has ended." in ended.stdout) == (0, True), ended.stderr
    until(
        "another pod is ready",
        lambda: (pod := _pods().get("pool-default")) and pod["ready"] and pod["name"] != drained,
        timeout_seconds=_SECONDS,
    )


def _caller(core: Any, pool: str, authority: Authority | None = None) -> flight.FlightClient:
    """Return a client outside the cluster's DNS."""
    host = f"{_RELEASE}-updraft-pool-{pool}"
    address = core.read_namespaced_service(f"{host}-cluster", _NAMESPACE).spec.cluster_ip
    if authority is None:
        return flight.FlightClient(f"grpc://{address}:8815")
    return flight.FlightClient(
        f"grpc+tls://{address}:8815",
        tls_root_certs=authority.certificate.read_bytes(),
        override_hostname=f"{host}.{_NAMESPACE}",
    )


def _options(core: Any, pool: str) -> flight.FlightCallOptions:
    secret = core.read_namespaced_secret(f"{_RELEASE}-updraft-pool-{pool}-token", _NAMESPACE)
    token = base64.b64decode(secret.data["token"])
    return flight.FlightCallOptions(timeout=_SECONDS, headers=[(b"authorization", b"Bearer " + token)])


def _state(name: str) -> str:
    states: Sequence[str] = [
        pod["status"]["state"] for pod in _json("status") if pod["name"] == name and isinstance(pod["status"], dict)
    ]
    return states[0] if states else ""


def test_a_disruption_budget_is_kept(release: Path) -> None:
    budget = "common.podDisruptionBudget.maxUnavailable=0"
    _helm("upgrade", _RELEASE, str(CHART), _PROFILE, "--values", str(release), "--set", budget, "--wait")
    kept = _pods()["pool-default"]["name"]
    refused = _updraft("drain", kept)
    assert refused.returncode == 1
    assert "disruption budget" in refused.stderr
    assert _pods()["pool-default"]["name"] == kept


def test_a_pod_outside_the_release_is_not_drained(core: Any) -> None:
    refused = _updraft("drain", "nobody")
    assert (refused.returncode, "not found" in refused.stderr) == (1, True)
