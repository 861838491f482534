# SPDX-License-Identifier: Apache-2.0
"""Release and Spark shared by all tests of the cluster; the test that uninstalls the release runs last."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kube.cluster import NAME, SEALED, SHARED, SIGNERS, Release, helm
from tests.kube.executors import AUTHORITY, spark_on_kubernetes
from tests.kube.namespace import Namespace
from tests.kube.tenants import TENANTS, Tenants
from tests.support.certificates import Authority

_IMAGES = os.environ.get("UPDRAFT_IMAGES", "localhost")
SEALED_TOKEN = "of-the-other-tenant"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "uninstall" in item.name)


@pytest.fixture(scope="session")
def images() -> str:
    """Return the registry of the images."""
    return _IMAGES


@pytest.fixture(scope="session")
def tables() -> Iterator[Path]:
    """Make a directory with the same path here and in pods, writable by everyone."""
    directory = Path(tempfile.mkdtemp(prefix="updraft-tables-"))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def namespace(tables: Path) -> Iterator[Namespace]:
    assert "KUBECONFIG" in os.environ, "KUBECONFIG names no cluster"
    made = Namespace(tables)
    made.create()
    yield made
    made.remove()


@pytest.fixture(scope="session")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of jobs' tokens and certificates, here and in executor pods."""
    return tmp_path_factory.mktemp("mounts")


@pytest.fixture(scope="session")
def tenants(tmp_path_factory: pytest.TempPathFactory, mounts: Path) -> Tenants:
    return Tenants(tmp_path_factory.mktemp("tenants"), mounts)


@pytest.fixture(scope="session")
def release(
    namespace: Namespace, tables: Path, mounts: Path, tenants: Tenants, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    release = Release(namespace, _IMAGES, tables, mounts)
    authority = Authority(tmp_path_factory.mktemp("certificates") / "ca")
    for component in (f"pool-{SEALED}", "writer"):
        identity = authority.identity(release.host(component))
        tls = {"tls.crt": identity.certificate.read_text(), "tls.key": identity.key.read_text()}
        namespace.add_secret(f"{component}-tls", tls)
    namespace.add_secret(AUTHORITY, {"ca.crt": authority.certificate.read_text()})
    namespace.add_secret(f"{SEALED}-tokens", {"tokens": SEALED_TOKEN, "token": SEALED_TOKEN})
    namespace.add_secret(f"{SHARED}-tokens", tenants.known_to_the_pool())
    namespace.add_secret(TENANTS, dict(tenants.tokens))
    namespace.add_config_map(SIGNERS, tenants.signers())
    yield release.install()
    # If pods are left, Kubernetes retries the namespace's deletion only after half their termination grace period.
    helm("uninstall", NAME, "--ignore-not-found", "--cascade", "foreground")


@pytest.fixture(scope="session")
def spark(
    release: Release, namespace: Namespace, tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    with spark_on_kubernetes(release, namespace, _IMAGES, tables, tmp_path_factory.mktemp("spark")) as session:
        yield session
