# SPDX-License-Identifier: Apache-2.0
"""Storages on this machine: s3rver for S3, fake-gcs-server for Google's, Azurite for Azure's, and a small HDFS."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pyspark
from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas
from pyarrow import fs

from tests.support.paths import BUILD
from tests.support.ports import free_ports
from tests.support.waiting import until

BUCKET = "tables"
# What Azurite's documentation says for everybody.
_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_START_SECONDS = 60
# libhdfs looks for a class of commons-lang itself; Spark's copy of Hadoop has everything else.
_HADOOP = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "jcl-over-slf4j", "commons-lang3")
HADOOP_JARS = [jar for name in _HADOOP for jar in Path(pyspark.__file__).parent.glob(f"jars/{name}-*.jar")]
MINICLUSTER_JARS = sorted((BUILD / "hdfs").glob("*.jar"))
_STOP_SECONDS = 60


@dataclass(frozen=True)
class ObjectStore:
    """A bucket: the root that a writer is started with, the URI that its clients name, how a test looks inside."""

    root: str
    uri: str
    files: fs.FileSystem
    bucket: str = BUCKET

    def names(self) -> list[str]:
        """Every object in the bucket, also those that nobody reads."""
        found = self.files.get_file_info(fs.FileSelector(self.bucket, recursive=True))
        return sorted(info.path.removeprefix(f"{self.bucket}/") for info in found if info.is_file)


@contextmanager
def s3(directory: Path) -> Iterator[ObjectStore]:
    """S3; credentials are those of the environment, which s3rver wants to be S3RVER."""
    port = next(free_ports())
    listen = ["--address", "127.0.0.1", "--port", str(port), "--directory", str(directory)]
    with _running(["s3rver", "--silent", *listen, "--configure-bucket", BUCKET], f"http://127.0.0.1:{port}/"):
        options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        files, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}?{options}")
        yield ObjectStore(f"s3a://{BUCKET}/warehouse?{options}", f"s3a://{BUCKET}/warehouse", files)


@contextmanager
def gs(_directory: Path) -> Iterator[ObjectStore]:
    """Google Cloud Storage, without credentials."""
    port = next(free_ports())
    address = f"127.0.0.1:{port}"
    listen = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command = ["fake-gcs-server", *listen, "-public-host", address, "-external-url", f"http://{address}"]
    with _running(command, f"http://{address}/storage/v1/b?project=test"):
        files = fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override=address, project_id="test")
        files.create_dir(BUCKET)
        options = f"endpoint_override={address}&scheme=http&retry_limit_seconds=10"
        yield ObjectStore(f"gs://anonymous@{BUCKET}/warehouse?{options}", f"gs://{BUCKET}/warehouse", files)


@contextmanager
def abfs(directory: Path) -> Iterator[ObjectStore]:
    """Azure Blob Storage, by a signature."""
    port = next(free_ports())
    address = f"127.0.0.1:{port}"
    listen = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(directory)]
    # It knows no version of the protocol that is newer than itself.
    with _running(["azurite-blob", "--silent", "--skipApiVersionCheck", *listen], f"http://{address}/"):
        files = fs.AzureFileSystem(
            _AZURE_ACCOUNT,
            account_key=_AZURE_KEY,
            blob_storage_authority=address,
            dfs_storage_authority=address,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )
        files.create_dir(BUCKET)
        signature = generate_account_sas(
            _AZURE_ACCOUNT,
            _AZURE_KEY,
            ResourceTypes(service=True, container=True, object=True),
            AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True, add=True),
            expiry=datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1),
        )
        uri = f"abfs://{_AZURE_ACCOUNT}@{address}/{BUCKET}/warehouse"
        yield ObjectStore(f"{uri}?enable_tls=false&{signature}", uri, files)


@contextmanager
def hdfs(directory: Path) -> Iterator[ObjectStore]:
    """A name node and a data node in one JVM; ARROW_LIBHDFS_DIR has libhdfs, CLASSPATH its jars."""
    told = directory / "details.json"
    jars = ":".join(map(str, [*HADOOP_JARS, *MINICLUSTER_JARS]))
    small = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dtest.build.data={directory}")
    cluster = ("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1", "-nnport", "0")
    command = ["java", *small, "-cp", jars, *cluster, "-writeDetails", str(told)]
    with _process(command, lambda: told.exists() and bool(told.read_text())):
        address = f"hdfs://127.0.0.1:{json.loads(told.read_text())['namenode_port']}"
        files, bucket = fs.FileSystem.from_uri(f"{address}/{BUCKET}?replication=1")
        files.create_dir(bucket)
        uri = f"{address}/{BUCKET}/warehouse"
        yield ObjectStore(f"{uri}?replication=1", uri, files, bucket)


OBJECT_STORES: dict[str, Callable[[Path], object]] = {"s3": s3, "gs": gs, "abfs": abfs}
STORES = OBJECT_STORES | {"hdfs": hdfs}


@contextmanager
def _running(command: Sequence[str], address: str) -> Iterator[None]:
    def answers() -> bool:
        try:
            urlopen(address, timeout=60).close()
        except HTTPError:
            return True
        except (URLError, ConnectionError):
            return False
        return True

    with _process(command, answers):
        yield


@contextmanager
def _process(command: Sequence[str], is_up: Callable[[], bool]) -> Iterator[None]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def is_up_or_dead() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} ended with status {process.returncode}")
        return is_up()

    try:
        until(f"{command[0]} answers", is_up_or_dead, timeout_seconds=_START_SECONDS)
        yield
    finally:
        process.terminate()
        process.wait(_STOP_SECONDS)
