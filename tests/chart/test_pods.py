# SPDX-License-Identifier: Apache-2.0
"""What a platform adds to pods: its users, sandboxes, containers, spread, probes, DNS, images by digest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.chart import ChartError, Release, render

_POOL, _WRITER = "air-updraft-pool-default", "air-updraft-writer"
_BOTH = pytest.mark.parametrize("name", [_POOL, _WRITER])
_DIGEST = f"sha256:{'a1' * 32}"


def _of(name: str, **values: Any) -> dict[str, Any]:
    """Values of the pool or of the writer, alone."""
    return {"pools": {"default": values}} if name == _POOL else {"writer": values}


def _short_pods(release: Release) -> list[dict[str, Any]]:
    """The Job's pod and the pod of `helm test`."""
    (job,) = release.all("Job")
    return [job["spec"]["template"]["spec"], *(pod["spec"] for pod in release.all("Pod"))]


_CLUSTERS_OWN: dict[str, Any] = {"user": None, "podSecurityContext": {"seccompProfile": None}}


def test_openshift_chooses_users_of_every_container() -> None:
    release = render({"common": _CLUSTERS_OWN, "poolDefaults": {"workers": {"user": None}}})
    pods = [release.pod(_POOL), release.pod(_WRITER), *_short_pods(release)]
    for pod in pods:
        assert pod["securityContext"] == {"runAsNonRoot": True}
        for container in pod["containers"]:
            assert not {"runAsUser", "runAsGroup"} & container["securityContext"].keys()


@_BOTH
def test_fields_of_a_security_context_are_replaced_one_by_one(name: str) -> None:
    own = {"supplementalGroups": [7], "fsGroup": 8}
    pod = render({"common": {"podSecurityContext": own}}).pod(name)
    assert pod["securityContext"] == {**own, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    (*_, container) = render({"common": {"securityContext": {"readOnlyRootFilesystem": False}}}).pod(name)["containers"]
    assert not container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_halves_of_a_pool_have_security_contexts_of_their_own() -> None:
    profile = {"seLinuxOptions": {"level": "s0:c1,c2"}}
    release = render({"poolDefaults": {"workers": {"securityContext": profile}}})
    assert profile.items() <= release.container(_POOL, "workers")["securityContext"].items()
    assert not profile.keys() & release.container(_POOL)["securityContext"].keys()


@_BOTH
def test_pods_run_in_a_sandbox_that_a_gpus_runtime_class_replaces(name: str) -> None:
    release = render(_of(name, runtimeClassName="gvisor"))
    assert release.pod(name)["runtimeClassName"] == "gvisor"
    gpu = {"gpu": {"count": 1, "runtimeClassName": "nvidia"}}
    values = _of(name, runtimeClassName="gvisor", **({"workers": gpu} if name == _POOL else gpu))
    assert render(values).pod(name)["runtimeClassName"] == "nvidia"
    without = {"gpu": {"count": 0, "runtimeClassName": "nvidia"}}
    assert "runtimeClassName" not in render({"writer": without}).pod(_WRITER)


@_BOTH
def test_pods_have_containers_of_the_platform(name: str) -> None:
    values = _of(name, initContainers=[{"name": "first", "image": "i"}], sidecars=[{"name": "beside", "image": "b"}])
    pod, plain = render(values).pod(name), render().pod(name)
    assert pod["initContainers"] == [{"name": "first", "image": "i"}]
    assert pod["containers"] == [*plain["containers"], {"name": "beside", "image": "b"}]


@_BOTH
def test_pods_spread_over_nodes_and_zones_each_version_by_itself(name: str) -> None:
    release = render()
    spread = release.pod(name)["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for each in spread:
        assert each["labelSelector"] == release.one("Deployment", name)["spec"]["selector"]
        assert each["matchLabelKeys"] == ["pod-template-hash"]


def test_the_spread_is_the_platforms() -> None:
    own = {"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    named = {**own, "labelSelector": {"matchLabels": {"team": "etl"}}}
    (first, second) = render(_of(_POOL, topologySpreadConstraints=[own, named])).pod(_POOL)["topologySpreadConstraints"]
    assert first["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "pool-default"
    assert second == named
    assert "topologySpreadConstraints" not in render(_of(_POOL, topologySpreadConstraints=[])).pod(_POOL)


@_BOTH
def test_probes_are_timed_by_values_and_ask_the_same(name: str) -> None:
    probes = {"startup": {"periodSeconds": 7}, "readiness": {"periodSeconds": 9}, "liveness": {"failureThreshold": 6}}
    container, plain = (
        render(_of(name, probes=probes, startupTimeoutSeconds=30)).container(name),
        render().container(name),
    )
    for kind in probes:
        assert container[f"{kind}Probe"]["grpc"] == plain[f"{kind}Probe"]["grpc"]
    assert (container["startupProbe"]["periodSeconds"], container["startupProbe"]["failureThreshold"]) == (7, 5)
    assert (container["readinessProbe"]["periodSeconds"], container["livenessProbe"]["failureThreshold"]) == (9, 6)


@_BOTH
@pytest.mark.parametrize("seconds", [30, 3600])
def test_a_rollout_fails_no_sooner_than_a_pod_that_does_not_come_up(name: str, seconds: int) -> None:
    release = render(_of(name, startupTimeoutSeconds=seconds))
    assert release.one("Deployment", name)["spec"]["progressDeadlineSeconds"] == seconds + 300


@_BOTH
def test_a_pod_without_workers_turns_unready_within_a_second(name: str) -> None:
    probe = render().container(name)["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 1


@_BOTH
def test_pods_have_a_user_namespace_where_the_platform_wants_one(name: str) -> None:
    assert "hostUsers" not in render().pod(name)
    assert render(_of(name, hostUsers=False)).pod(name)["hostUsers"] is False


@_BOTH
def test_old_versions_are_kept_for_a_rollback(name: str) -> None:
    assert render().one("Deployment", name)["spec"]["revisionHistoryLimit"] == 10
    assert render(_of(name, revisionHistoryLimit=2)).one("Deployment", name)["spec"]["revisionHistoryLimit"] == 2


@pytest.mark.parametrize("probe", [{"startup": {"failureThreshold": 3}}, {"liveness": {"grpc": {"port": 1}}}])
def test_probes_ask_what_the_chart_says(probe: dict[str, Any]) -> None:
    with pytest.raises(ChartError, match=next(iter(probe))):
        render({"common": {"probes": probe}})


_PLACED: dict[str, Any] = {
    "schedulerName": "batch",
    "priorityClassName": "high",
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["10.0.0.10"], "options": [{"name": "ndots", "value": "2"}]},
}


def test_every_pod_of_a_release_is_placed_and_resolves_names_alike() -> None:
    release = render({"common": _PLACED})
    for pod in (release.pod(_POOL), release.pod(_WRITER), *_short_pods(release)):
        assert _PLACED.items() <= pod.items()


def test_variables_come_from_a_config_map_in_one_half_alone() -> None:
    source = [{"configMapRef": {"name": "models"}}]
    release = render({"poolDefaults": {"workers": {"envFrom": source}}})
    assert release.container(_POOL, "workers")["envFrom"] == source
    assert "envFrom" not in release.container(_POOL)
    assert "envFrom" not in release.container(_WRITER)


def test_images_are_named_by_digest() -> None:
    workers = {"image": {"repository": "team", "digest": _DIGEST}}
    release = render({"poolDefaults": {"workers": workers}, "writer": {"image": {"digest": _DIGEST}}})
    images = {container["image"] for container in release.pod(_POOL)["containers"]}
    assert images == {f"registry.test/team@{_DIGEST}"}
    job, test, *_ = _short_pods(release)
    assert job["containers"][0]["image"] == f"registry.test/updraft-writer@{_DIGEST}"
    assert test["containers"][0]["image"] == f"registry.test/team@{_DIGEST}"


def test_a_digest_is_of_one_image_and_no_other() -> None:
    pools = {"default": {}, "etl": {"workers": {"image": {"tag": "ours"}}}}
    front = {"image": {"repository": "plain"}}
    release = render({"poolDefaults": {"front": front, "workers": {"image": {"digest": _DIGEST}}}, "pools": pools})
    assert release.container(_POOL, "workers")["image"].endswith(_DIGEST)
    assert _DIGEST not in release.container(_POOL)["image"]
    assert release.container("air-updraft-pool-etl", "workers")["image"] == "registry.test/updraft-pool:ours"
    with pytest.raises(ChartError, match=r"set poolDefaults\.workers\.image\.digest and writer\.image\.digest"):
        render({"common": {"image": {"digest": _DIGEST}}})


def test_pods_that_are_not_ready_hold_up_no_drain_of_a_node() -> None:
    assert render().one("PodDisruptionBudget", _POOL)["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    kept = _of(_POOL, podDisruptionBudget={"unhealthyPodEvictionPolicy": "IfHealthyBudget"})
    assert render(kept).one("PodDisruptionBudget", _POOL)["spec"]["unhealthyPodEvictionPolicy"] == "IfHealthyBudget"


def _requests(name: str, container: str, **values: Any) -> dict[str, str]:
    return dict(render({"common": values}).container(name, container)["resources"].get("requests", {}))


@pytest.mark.parametrize(("name", "container"), [(_POOL, "front"), (_POOL, "workers"), (_WRITER, "writer")])
def test_scratch_is_requested_as_well_as_limited(name: str, container: str) -> None:
    assert _requests(name, container)["ephemeral-storage"] == "1Gi"
    assert _requests(name, container, scratchRequest="2Gi")["ephemeral-storage"] == "2Gi"
    assert "ephemeral-storage" not in _requests(name, container, scratchRequest="")


def test_a_container_that_requests_its_storage_itself_keeps_it() -> None:
    own = {"requests": {"ephemeral-storage": "20Gi"}}
    release = render({"writer": {"resources": own}, "poolDefaults": {"front": {"resources": {"requests": None}}}})
    assert release.container(_WRITER)["resources"]["requests"]["ephemeral-storage"] == "20Gi"
    assert release.container(_POOL)["resources"]["requests"] == {"ephemeral-storage": "1Gi"}


def test_the_front_has_cpu_of_its_own_beside_one_for_each_worker() -> None:
    release = render()
    asked = {name: release.container(_POOL, name)["resources"]["requests"]["cpu"] for name in ("front", "workers")}
    assert asked == {"front": "500m", "workers": "2"}
    (count,) = (each for each in release.container(_POOL)["env"] if each["name"] == "UPDRAFT_WORKERS")
    assert count["valueFrom"]["resourceFieldRef"] == {"containerName": "workers", "resource": "requests.cpu"}


def test_a_pool_that_drains_for_hours_gets_hours_and_others_do_not() -> None:
    release = render({"pools": {"default": {}, "nightly": {"drainTimeoutSeconds": 7200}}})
    nightly = "air-updraft-pool-nightly"
    for container in ("front", "workers"):
        assert release.environment(nightly, container)["UPDRAFT_DRAIN_TIMEOUT_SECONDS"] == "7200"
    assert release.pod(nightly)["terminationGracePeriodSeconds"] == 7200 + 5 + 15
    assert release.pod(_POOL)["terminationGracePeriodSeconds"] == 300 + 5 + 15


def test_a_release_has_further_manifests_that_know_its_values() -> None:
    extra = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "{{ .Release.Name }}-ours"},
        "data": {"pool": '{{ include "updraft.fullname" . }}-pool-default'},
    }
    release = render({"extraObjects": [extra, {**extra, "metadata": {"name": "second"}}]})
    assert release.one("ConfigMap", "air-ours")["data"]["pool"] == _POOL
    assert release.one("ConfigMap", "second")
