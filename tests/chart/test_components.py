# SPDX-License-Identifier: Apache-2.0
"""Pools and the writer: what their pods run, with which settings, behind which Services."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.chart.chart import job_template, mounted, notes, render
from tests.support.functions_page import PAGE, step
from tests.support.page import block
from updraft.service.settings import ENVIRONMENT_PREFIX
from updraft_server.settings import SeparateFrontSettings, SeparateWorkersSettings
from updraft_writer.settings import ServeSettings as WriterSettings

_POOL, _WRITER = "air-updraft-pool-default", "air-updraft-writer"
_BOTH = pytest.mark.parametrize("name", [_POOL, _WRITER])


def test_null_removes_a_pool_that_the_chart_has_not() -> None:
    deployments = render({"pools": {"red": None, "blue": {}}}).all("Deployment")
    names = {deployment["metadata"]["name"] for deployment in deployments}
    assert names == {"air-updraft-pool-default", "air-updraft-pool-blue", "air-updraft-writer"}


def test_without_values_there_is_one_pool_and_one_writer() -> None:
    assert [manifest["metadata"]["name"] for manifest in render().all("Deployment")] == [_POOL, _WRITER]


def test_pools_come_from_one_map_and_each_may_differ() -> None:
    pools = {"default": {"replicas": 1}, "big": {"replicas": 8, "workers": {"count": 16, "image": {"tag": "numpy"}}}}
    release = render({"common": {"image": {"registry": "registry.example/data"}}, "pools": pools})
    assert release.one("Deployment", _POOL)["spec"]["replicas"] == 1
    assert release.one("Deployment", "air-updraft-pool-big")["spec"]["replicas"] == 8
    for container in ("front", "workers"):
        image = release.container("air-updraft-pool-big", container)["image"]
        assert image == "registry.example/data/updraft-pool:numpy"
    assert release.environment("air-updraft-pool-big")["UPDRAFT_WORKERS"] == "16"


def test_the_writer_can_be_left_out() -> None:
    assert [pod["metadata"]["name"] for pod in render({"writer": {"enabled": False}}).all("Deployment")] == [_POOL]


def test_a_pool_can_be_left_out() -> None:
    names = [pod["metadata"]["name"] for pod in render({"pools": {"default": None}}).all("Deployment")]
    assert names == [_WRITER]


_CONTAINERS = pytest.mark.parametrize(
    ("name", "container", "settings"),
    [
        (_POOL, "front", SeparateFrontSettings),
        (_POOL, "workers", SeparateWorkersSettings),
        (_WRITER, "writer", WriterSettings),
    ],
    ids=["front", "workers", "writer"],
)


@_CONTAINERS
def test_every_variable_is_a_setting_of_the_service(name: str, container: str, settings: Any) -> None:
    given = render({"writer": {"roots": ["/data", "s3://tables"]}}).container(name, container)["env"]
    known = {f"{ENVIRONMENT_PREFIX}{field.upper()}" for field in settings.model_fields}
    named_by_the_chart = {"UPDRAFT_CONFIGURED_BY"}
    assert {variable["name"] for variable in given} - named_by_the_chart <= known


_FRONT = {"queueLimit": 512, "clientSilenceSeconds": 1.5, "allowRemoteDrain": True}
_WORKERS = {"maxExchangesPerWorker": 100}
_BOTH_SIDES = {"maxMessageBytes": 1 << 27}
_POOLS = {
    "common": {"settings": _BOTH_SIDES},
    "pools": {"default": {"front": {"settings": _FRONT}, "workers": {"settings": _WORKERS}}},
}
_WRITERS = {"quotaBytes": 5_000_000_000, "storageSilenceSeconds": 7, "allowRemoteDrain": True}


@pytest.mark.parametrize(
    ("name", "container", "settings", "values", "given"),
    [
        (_POOL, "front", SeparateFrontSettings, _POOLS, _FRONT | _BOTH_SIDES),
        (_POOL, "workers", SeparateWorkersSettings, _POOLS, _WORKERS | _BOTH_SIDES),
        (_WRITER, "writer", WriterSettings, {"writer": {"settings": _WRITERS}}, _WRITERS),
    ],
    ids=["front", "workers", "writer"],
)
def test_own_settings_reach_the_service(
    name: str,
    container: str,
    settings: Any,
    values: dict[str, Any],
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, value in render(values).environment(name, container).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("UPDRAFT_TOKEN_FILE", "/dev/null")
    read = settings()
    for setting, value in given.items():
        field = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in setting)
        assert getattr(read, field) == value


@pytest.mark.parametrize(
    ("limits", "source"), [({"memory": "1Gi"}, "requests.cpu"), ({"memory": "1Gi", "cpu": "4"}, "limits.cpu")]
)
def test_a_pool_has_a_worker_for_each_cpu_of_its_pod(limits: dict[str, str], source: str) -> None:
    release = render({"poolDefaults": {"workers": {"resources": {"requests": {"cpu": "2"}, "limits": limits}}}})
    (workers,) = (variable for variable in release.container(_POOL)["env"] if variable["name"] == "UPDRAFT_WORKERS")
    assert workers["valueFrom"]["resourceFieldRef"] == {"containerName": "workers", "resource": source}


@_BOTH
def test_probes_check_services_by_name_on_the_health_port(name: str) -> None:
    container = render().container(name)
    health = next(port["containerPort"] for port in container["ports"] if port["name"] == "health")
    asked = {kind: container[f"{kind}Probe"]["grpc"] for kind in ("startup", "readiness", "liveness")}
    assert {probe["port"] for probe in asked.values()} == {health}
    assert asked["startup"] == asked["readiness"]
    # A draining pod is not ready, and must not be restarted before it has finished.
    assert asked["liveness"]["service"] == "updraft.live"


@_BOTH
def test_a_hanging_pod_gets_less_time_to_end_than_a_draining_one(name: str) -> None:
    liveness = render({"common": {"drainTimeoutSeconds": 900}}).container(name)["livenessProbe"]
    assert liveness["terminationGracePeriodSeconds"] == 10


@_BOTH
def test_a_pod_gets_more_time_to_end_than_its_drain_may_take(name: str) -> None:
    release = render({"common": {"drainTimeoutSeconds": 900}})
    assert release.environment(name)["UPDRAFT_DRAIN_TIMEOUT_SECONDS"] == "900"
    assert release.container(name)["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
    assert release.pod(name)["terminationGracePeriodSeconds"] > 905


@_BOTH
def test_pods_are_restricted(name: str) -> None:
    pod, container = render().pod(name), render().container(name)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_workers_have_no_secret_no_port_and_a_user_of_their_own() -> None:
    tls = {"front": {"tls": {"mode": "secret", "secretName": "tls"}}}
    release = render({"pools": {"default": tls}})
    pod, front = release.pod(_POOL), release.container(_POOL)
    workers = release.container(_POOL, "workers")
    assert not {"ports", "startupProbe", "readinessProbe", "livenessProbe"} & workers.keys()
    secrets = {volume["name"] for volume in pod["volumes"] if "secret" in volume}
    assert secrets == {"tokens", "tls"}
    assert secrets <= {mount["name"] for mount in front["volumeMounts"]}
    assert not secrets & {mount["name"] for mount in workers["volumeMounts"]}
    assert workers["securityContext"]["runAsUser"] != front["securityContext"]["runAsUser"]
    assert not pod.get("shareProcessNamespace")


def test_the_workers_see_the_fronts_files_where_it_has_them_and_write_none() -> None:
    release = render()
    front, workers = release.container(_POOL), release.container(_POOL, "workers")
    (own,) = (mount for mount in front["volumeMounts"] if mount["name"] == "front")
    (seen,) = (mount for mount in workers["volumeMounts"] if mount["name"] == "front")
    assert seen == {**own, "readOnly": True}
    directory = release.environment(_POOL, "workers")["UPDRAFT_FRONT_DIRECTORY"]
    assert directory == release.environment(_POOL)["UPDRAFT_RUNTIME_DIRECTORY"]
    assert directory.startswith(own["mountPath"])


def test_the_front_has_a_temporary_directory_that_the_workers_do_not_see() -> None:
    release = render()
    front, workers = (
        {mount["mountPath"]: mount["name"] for mount in release.container(_POOL, name)["volumeMounts"]}
        for name in ("front", "workers")
    )
    assert front["/tmp"] not in workers.values()
    (volume,) = (volume for volume in release.pod(_POOL)["volumes"] if volume["name"] == front["/tmp"])
    assert volume["emptyDir"]["medium"] == "Memory"


def test_the_containers_of_a_pool_have_an_image_and_resources_of_their_own() -> None:
    front = {"image": {"repository": "plain"}, "resources": {"limits": {"memory": "3Gi"}}, "env": [{"name": "A"}]}
    release = render({"pools": {"default": {"front": front, "workers": {"image": {"tag": "numpy"}}}}})
    made = {name: release.container(_POOL, name) for name in ("front", "workers")}
    assert made["front"]["image"] == "registry.test/plain:numpy"
    assert made["workers"]["image"] == "registry.test/updraft-pool:numpy"
    assert made["front"]["resources"]["limits"] == {"memory": "3Gi"}
    assert made["workers"]["resources"]["limits"] == {"memory": "4Gi"}
    assert [{"name": "A"} in container["env"] for container in made.values()] == [True, False]


@_BOTH
def test_the_platform_may_choose_the_users(name: str) -> None:
    release = render({"common": {"user": None}, "poolDefaults": {"workers": {"user": None}}})
    users = {"runAsUser", "runAsGroup", "fsGroup"}
    for place in (release.pod(name), *release.pod(name)["containers"]):
        assert not users & place["securityContext"].keys()


@_BOTH
def test_one_service_is_headless_and_one_is_not(name: str) -> None:
    release = render()
    assert release.one("Service", name)["spec"]["clusterIP"] == "None"
    assert "clusterIP" not in release.one("Service", f"{name}-cluster")["spec"]


@_BOTH
def test_selectors_choose_the_pods_of_their_component_alone(name: str) -> None:
    release = render({"pools": {"default": {}, "other": {}}})
    labels = release.one("Deployment", name)["spec"]["template"]["metadata"]["labels"]
    selectors = [
        release.one("Deployment", name)["spec"]["selector"]["matchLabels"],
        release.one("Service", name)["spec"]["selector"],
        release.one("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"],
        release.one("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector == selectors[0] for selector in selectors)
    assert selectors[0].items() <= labels.items()
    others = [pod["spec"]["template"]["metadata"]["labels"] for pod in release.all("Deployment")]
    assert sum(selectors[0].items() <= pod.items() for pod in others) == 1


def test_a_gpu_is_a_limit_of_what_computes_alone() -> None:
    gpu = {"resources": {"limits": {"amd.com/gpu": 2}}}
    sandbox = {"podTemplate": {"spec": {"runtimeClassName": "rocm"}}}
    pool = {"pools": {"default": {"workers": gpu, **sandbox}}}
    for values, name, other in ((pool, _POOL, _WRITER), ({"writer": {**gpu, **sandbox}}, _WRITER, _POOL)):
        release = render(values)
        computing = "workers" if name == _POOL else "writer"
        assert release.container(name, computing)["resources"]["limits"] == {"memory": "4Gi", "amd.com/gpu": 2}
        assert str(release.pod(name)["containers"]).count("amd.com/gpu") == 1
        assert release.pod(name)["runtimeClassName"] == "rocm"
        assert "runtimeClassName" not in release.pod(other)


def test_functions_come_from_a_config_map() -> None:
    functions = {"modules": ["ours.prices", "ours.names"], "configMap": "ours"}
    release = render({"pools": {"default": {"workers": {"functions": functions, "sessionFunctions": "off"}}}})
    environment = release.environment(_POOL, "workers")
    assert environment["UPDRAFT_FUNCTIONS"] == "ours.prices,ours.names"
    assert environment["UPDRAFT_SESSION_FUNCTIONS"] == "off"
    (mount,) = (mount for mount in release.container(_POOL, "workers")["volumeMounts"] if mount["name"] == "functions")
    assert mount["mountPath"] == environment["PYTHONPATH"]


def test_functions_come_in_the_image_that_the_page_pushes() -> None:
    values = yaml.safe_load(block(PAGE, "yaml", "image:"))
    release = render({"common": {"image": {"registry": "registry.example/data"}}, **values})
    assert release.container(_POOL, "workers")["image"] == step("buildah push").text.split()[-1]
    environment = release.environment(_POOL, "workers")
    assert (environment["PYTHONPATH"], environment["UPDRAFT_FUNCTIONS"]) == ("/opt/functions/0.0.1", "my_functions")
    assert "PYTHONPATH" not in release.environment(_POOL, "front")


def test_the_notes_print_the_confs_of_each_pool_and_of_the_writer() -> None:
    said = notes({"pools": {"default": {}, "gpu": {"front": {"tls": {"mode": "secret", "secretName": "gpu-tls"}}}}})
    confs = dict(line.split(maxsplit=1) for line in said.splitlines() if line.startswith("  spark."))
    assert "grpc://air-updraft-pool-default.data:8815" in said
    assert "grpc+tls://air-updraft-pool-gpu.data:8815" in said
    assert confs["spark.sql.extensions"] == "io.updraft.spark.UpdraftExtensions"
    assert confs["spark.updraft.write.endpoint"] == "grpc://air-updraft-writer.data:8816"
    assert confs["spark.updraft.udf.tokenFile"] == "/etc/updraft/air-updraft-pool-gpu-token/token"
    writers = "air-updraft-writer-token"
    assert confs["spark.updraft.write.tokenFile"] == f"/etc/updraft/{writers}/token"
    assert {confs[f"spark.kubernetes.{role}.podTemplateFile"] for role in ("driver", "executor")} == {"job.yaml"}
    tokens = {"air-updraft-pool-default-token", "air-updraft-pool-gpu-token", writers}
    assert mounted(job_template(said)["spec"]) == {f"/etc/updraft/{token}/token" for token in tokens}


def test_a_job_of_two_tenants_can_mount_the_token_of_each() -> None:
    said = notes({"pools": {tenant: {"front": {"auth": {"existingSecret": f"{tenant}-tokens"}}} for tenant in "ab"}})
    tokens = {f"/etc/updraft/{tenant}-tokens/token" for tenant in "ab"}
    assert tokens < mounted(job_template(said)["spec"])
    assert "If Secret a-tokens has more than a job may see" in said
    assert "has more than a job may see" not in notes()


def test_a_secret_of_several_pools_is_mounted_once() -> None:
    ours = {"front": {"auth": {"existingSecret": "ours"}}}
    spec = job_template(notes({"pools": {"default": ours, "more": ours}}))["spec"]
    assert mounted(spec) == {"/etc/updraft/ours/token", "/etc/updraft/air-updraft-writer-token/token"}
    assert len(spec["volumes"]) == 2


def test_without_tokens_there_is_nothing_to_mount() -> None:
    said = notes({"common": {"auth": {"insecureNoToken": True}}})
    assert "job.yaml" not in said
    assert "podTemplateFile" not in said


@pytest.mark.parametrize(
    ("tls", "files"),
    [
        ({}, {"caFile"}),
        ({"authorityKey": ""}, set()),
        ({"clientCertificates": True}, {"caFile", "certificateFile", "keyFile"}),
    ],
)
def test_the_notes_name_the_files_that_tls_needs(tls: dict[str, Any], files: set[str]) -> None:
    said = notes({"pools": {"default": {"front": {"tls": {"mode": "secret", "secretName": "ours", **tls}}}}})
    assert set(re.findall(r"spark\.updraft\.udf\.tls\.(\w+) +/etc/updraft/", said)) == files
    assert "Do not mount Secret ours into jobs" in said


def test_a_writer_without_roots_returns_files() -> None:
    assert re.search(r"spark.updraft.write.delivery +return", notes())
    assert "spark.updraft.write.delivery" not in notes({"writer": {"roots": ["/data"]}})
