# SPDX-License-Identifier: Apache-2.0
"""Examples of jobs: settings of the connector, endpoints and Secrets of a release, valid manifests."""

from __future__ import annotations

import itertools
import re
import shlex
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.chart.chart import NEWEST_KUBERNETES, job_template, mounted, notes
from tests.chart.custom_resources import validate
from tests.support.paths import REPOSITORY, VERSION

_EXAMPLES = REPOSITORY / "docs/examples"
_SETTING = re.compile(r"^### `(spark\.updraft\.\S+)`$", re.MULTILINE)
# For the first two, the notes have a placeholder for the job's Spark and the name of the pod template that they print.
# The others are for executors without Python.
_OF_THE_NOTES_ALONE = re.compile(
    r"spark\.jars|spark\.kubernetes\.\w+\.podTemplateFile|spark\.plugins|spark\.pyspark\..*"
)


def _yaml(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((_EXAMPLES / name).read_text()))


def _submitted() -> list[str]:
    script = re.sub(r"\\\n", " ", (_EXAMPLES / "spark-submit.sh").read_text())
    (command,) = (line for line in script.splitlines() if line.startswith("exec "))
    return shlex.split(command)[1:]


def _of_the_operator() -> dict[str, str]:
    return {name: str(value) for name, value in _yaml("spark-application.yaml")["spec"]["sparkConf"].items()}


def _of_spark_submit() -> dict[str, str]:
    arguments = _submitted()
    pairs = [value for option, value in itertools.pairwise(arguments) if option == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


_BOTH = pytest.mark.parametrize("confs", [_of_the_operator(), _of_spark_submit()], ids=["operator", "spark-submit"])


def _notes() -> dict[str, str]:
    """Return the confs that the notes of a release `updraft` in the namespace `data` print."""
    found = dict(re.findall(r"^  (spark\.\S+) +(\S+)$", notes({"fullnameOverride": "updraft"}), re.MULTILINE))
    return {name: value for name, value in found.items() if not _OF_THE_NOTES_ALONE.fullmatch(name)}


@_BOTH
def test_its_confs_are_those_of_the_notes(confs: dict[str, str]) -> None:
    assert _notes().items() <= confs.items()


def test_the_example_of_a_pod_template_is_that_of_the_notes() -> None:
    told = job_template(notes({"fullnameOverride": "updraft"}))["spec"]
    shown = _yaml("job-with-secret.yaml")["spec"]
    assert mounted(told) == mounted(shown) == _tokens(_of_spark_submit())


@_BOTH
def test_the_connector_has_every_setting(confs: dict[str, str]) -> None:
    known = set(_SETTING.findall((REPOSITORY / "docs/reference/connector.md").read_text()))
    used = {name for name in confs if name.startswith("spark.updraft.")}
    assert len(used) == 5
    assert used <= known


def _tokens(confs: dict[str, str]) -> set[str]:
    return {value for name, value in confs.items() if name.endswith(".tokenFile")}


def test_the_operator_takes_its_job_and_mounts_what_it_reads() -> None:
    job = _yaml("spark-application.yaml")
    validate(job)
    for role in ("driver", "executor"):
        template = job["spec"][role]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": role}, "spec": template["spec"]}
        kubernetes_validate.validate(pod, NEWEST_KUBERNETES, strict=False)
        assert mounted(template["spec"]) == _tokens(_of_the_operator())


def test_spark_submit_mounts_what_its_job_reads() -> None:
    confs = _of_spark_submit()
    templates = [value for name, value in confs.items() if name.endswith("podTemplateFile")]
    assert len(templates) == 2
    for template in templates:
        assert mounted(_yaml(template.removeprefix("$here/"))["spec"]) == _tokens(confs)


def test_both_name_a_jar_that_is_built() -> None:
    jars = [*_yaml("spark-application.yaml")["spec"]["deps"]["jars"], _submitted()[_submitted().index("--jars") + 1]]
    poms = (REPOSITORY / "spark-versions.toml").read_text()
    for jar in jars:
        (spark, version) = re.findall(r"/updraft-spark-(\S+)_2\.13-(\S+)\.jar$", jar)[0]
        assert version == VERSION
        assert f'jar = "{spark}"' in poms


def test_a_setting_that_the_connector_lacks_would_be_found() -> None:
    with pytest.raises(AssertionError):
        test_the_connector_has_every_setting({**_of_the_operator(), "spark.updraft.udf.endpiont": "grpc://x:1"})
