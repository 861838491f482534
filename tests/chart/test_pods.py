# SPDX-License-Identifier: Apache-2.0
"""Additions of a platform to pods: users, sandboxes, containers, spread, probes, DNS, images by digest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.chart import ChartError, Release, render

_POOL, _WRITER = "air-updraft-pool-default", "air-updraft-writer"
_BOTH = pytest.mark.parametrize("name", [_POOL, _WRITER])
_DIGEST = f"sha256:{'a1' * 32}"


def _of(name: str, **values: Any) -> dict[str, Any]:
    """Return values of the pool or the writer alone."""
    return {"pools": {"default": values}} if name == _POOL else {"writer": values}


def _short_pods(release: Release) -> list[dict[str, Any]]:
    """Return the specs of the Job's pod and of `helm test`'s pods."""
    (job,) = release.all("Job")
    return [job["spec"]["template"]["spec"], *(pod["spec"] for pod in release.all("Pod"))]


def _spec(**fields: Any) -> dict[str, Any]:
    """Return values with these fields of the pods."""
    return {"podTemplate": {"spec": fields}}


_CLUSTERS_OWN: dict[str, Any] = {"user": None, **_spec(securityContext={"seccompProfile": None})}


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
    pod = render({"common": _spec(securityContext=own)}).pod(name)
    assert pod["securityContext"] == {**own, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    writable = {"container": {"securityContext": {"readOnlyRootFilesystem": False}}}
    (*_, container) = render({"common": writable}).pod(name)["containers"]
    assert not container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_halves_of_a_pool_have_security_contexts_of_their_own() -> None:
    profile = {"seLinuxOptions": {"level": "s0:c1,c2"}}
    release = render({"poolDefaults": {"workers": {"container": {"securityContext": profile}}}})
    assert profile.items() <= release.container(_POOL, "workers")["securityContext"].items()
    assert not profile.keys() & release.container(_POOL)["securityContext"].keys()


@_BOTH
def test_pods_run_in_a_sandbox_that_a_component_replaces_with_its_own(name: str) -> None:
    everywhere = {"common": _spec(runtimeClassName="gvisor")}
    release = render({**everywhere, **_of(name, **_spec(runtimeClassName="nvidia"))})
    assert release.pod(name)["runtimeClassName"] == "nvidia"
    assert release.pod(_WRITER if name == _POOL else _POOL)["runtimeClassName"] == "gvisor"
    assert all(pod["runtimeClassName"] == "gvisor" for pod in _short_pods(release))


@_BOTH
def test_pods_have_containers_of_the_platform(name: str) -> None:
    first, beside = {"name": "first", "image": "i"}, {"name": "beside", "image": "b"}
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    values = _of(name, **_spec(initContainers=[first], containers=[beside], volumes=[volume]))
    pod, plain = render(values).pod(name), render().pod(name)
    assert pod["initContainers"] == [first]
    assert pod["containers"] == [*plain["containers"], beside]
    assert pod["volumes"] == [*plain["volumes"], volume]


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
    release = render(_of(_POOL, **_spec(topologySpreadConstraints=[own, named])))
    (first, second) = release.pod(_POOL)["topologySpreadConstraints"]
    assert first["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "pool-default"
    assert second == named
    assert "topologySpreadConstraints" not in render(_of(_POOL, **_spec(topologySpreadConstraints=[]))).pod(_POOL)


@_BOTH
def test_probes_are_timed_by_the_platform_and_ask_the_same(name: str) -> None:
    timing = {"readinessProbe": {"periodSeconds": 9}, "livenessProbe": {"failureThreshold": 6}}
    release, plain = render({"common": {"container": timing}}), render().container(name)
    container = release.container(name)
    for kind in timing:
        assert container[kind]["grpc"] == plain[kind]["grpc"]
    assert (container["readinessProbe"]["periodSeconds"], container["livenessProbe"]["failureThreshold"]) == (9, 6)
    # The workers' container does not listen, so it has no probe.
    assert not timing.keys() & release.container(_POOL, "workers").keys()


@pytest.mark.parametrize(
    ("load_timeout", "seconds"), [({}, 720), ({"loadTimeoutSeconds": 1800}, 1920), ({"loadTimeoutSeconds": 0}, 86_400)]
)
def test_a_pod_has_time_to_load_its_functions(load_timeout: dict[str, int], seconds: int) -> None:
    release = render({"poolDefaults": {"workers": {"settings": load_timeout}}})
    probe = release.container(_POOL)["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == seconds
    # A rollout fails only after its pods had their whole time to start.
    assert release.one("Deployment", _POOL)["spec"]["progressDeadlineSeconds"] == seconds + 300
    assert release.one("Deployment", _WRITER)["spec"]["progressDeadlineSeconds"] == 600


@_BOTH
def test_a_pod_without_workers_turns_unready_within_a_second(name: str) -> None:
    probe = render().container(name)["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 1


@_BOTH
def test_pods_have_a_user_namespace_where_the_platform_wants_one(name: str) -> None:
    assert "hostUsers" not in render().pod(name)
    assert render(_of(name, **_spec(hostUsers=False))).pod(name)["hostUsers"] is False


@_BOTH
def test_a_component_has_variables_mounts_and_annotations_of_its_own(name: str) -> None:
    mount = {"name": "data", "mountPath": "/data"}
    values = {
        "env": [{"name": "A", "value": "1"}],
        "container": {"env": [{"name": "B", "value": "2"}], "volumeMounts": [mount], "imagePullPolicy": "Always"},
        "podTemplate": {"metadata": {"labels": {"team": "etl"}, "annotations": {"note": "none"}}},
    }
    release, plain = render({"common": values}), render()
    container = release.container(name)
    assert [variable["name"] for variable in container["env"]][-2:] == ["A", "B"]
    assert container["volumeMounts"] == [*plain.container(name)["volumeMounts"], mount]
    assert container["imagePullPolicy"] == "Always"
    metadata = release.one("Deployment", name)["spec"]["template"]["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]) == ("etl", {"note": "none"})


_PLACED: dict[str, Any] = {
    "schedulerName": "batch",
    "priorityClassName": "high",
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["10.0.0.10"], "options": [{"name": "ndots", "value": "2"}]},
}


def test_every_pod_of_a_release_is_placed_and_resolves_names_alike() -> None:
    release = render({"common": _spec(**_PLACED)})
    for pod in (release.pod(_POOL), release.pod(_WRITER), *_short_pods(release)):
        assert _PLACED.items() <= pod.items()


def test_variables_come_from_a_config_map_in_one_half_alone() -> None:
    source = [{"configMapRef": {"name": "models"}}]
    release = render({"poolDefaults": {"workers": {"container": {"envFrom": source}}}})
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


@pytest.mark.parametrize(("name", "container"), [(_POOL, "front"), (_POOL, "workers"), (_WRITER, "writer")])
def test_scratch_is_requested_as_well_as_limited(name: str, container: str) -> None:
    assert render().container(name, container)["resources"]["requests"]["ephemeral-storage"] == "1Gi"


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
