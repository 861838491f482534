# SPDX-License-Identifier: Apache-2.0
"""One release and one Spark for all tests of the cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kube.cluster import Release
from tests.support.spark import local_spark

_NO_TASK_MAY_FAIL = "local[2,1]"


@pytest.fixture(scope="session")
def release() -> Iterator[Release]:
    assert "KUBECONFIG" in os.environ, "KUBECONFIG names no cluster"
    installed = Release(os.environ.get("UPDRAFT_IMAGES", "localhost"))
    try:
        yield installed.install()
    finally:
        installed.remove_namespace()


@pytest.fixture(scope="session")
def token_file(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(release.token())
    return path


@pytest.fixture(scope="session")
def spark(release: Release, token_file: Path) -> Iterator[SparkSession]:
    confs = {"spark.master": _NO_TASK_MAY_FAIL}
    for kind, component in (("udf", "pool-default"), ("write", "writer")):
        confs[f"spark.updraft.{kind}.endpoint"] = f"grpc://{release.address(component)}"
        confs[f"spark.updraft.{kind}.tokenFile"] = str(token_file)
    confs["spark.updraft.write.delivery"] = "return"
    session = local_spark("kube", connector=True, conf=confs)
    yield session
    session.stop()
