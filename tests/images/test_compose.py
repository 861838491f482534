# SPDX-License-Identifier: Apache-2.0
"""Images run as deploy/compose/compose.yaml says, and a Spark beside them uses both.

Compose needs Docker's engine. This test asks containerd for the same containers: image, command, user, environment,
read-only root, capabilities, tmpfs, shared memory, memory limit, and the usual filter of system calls. One network
namespace for both takes the place of the ports that Compose publishes on the laptop.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.images.image import opened
from tests.support.compose import services
from tests.support.paths import REPOSITORY
from tests.support.waiting import until

_SECONDS = 300
# Capabilities that containerd grants by default.
_CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP"),
    *("NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"),
)
_BYTES = {"m": 1 << 20, "g": 1 << 30}

_SPARK = """
import sys
from pyspark.sql.functions import udf
from tests.support.spark import ENDPOINT, local_spark

services = {ENDPOINT: "grpc://127.0.0.1:8815", "spark.updraft.write.endpoint": "grpc://127.0.0.1:8816"}
spark = local_spark("laptop", connector=True, conf={**services, "spark.updraft.write.delivery": "return"})
doubled = spark.range(1000).select(udf(lambda x: 2 * x, "long")("id").alias("x"))
plan = doubled._jdf.queryExecution().executedPlan().toString()
assert "FlightEvalPython" in plan, plan
doubled.write.format("updraft-parquet").save(sys.argv[1])
print("sum", spark.read.parquet(sys.argv[1]).agg({"x": "sum"}).first()[0])
"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("containerd"), reason="containerd is not on PATH, or the user is not root"
)


class Engine:
    """Separate containerd for this test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._socket = directory / "containerd.sock"
        configuration = directory / "containerd.toml"
        configuration.write_text(
            f'version = 2\nroot = "{directory}/root"\nstate = "{directory}/state"\n'
            f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{self._socket}"\n'
        )
        with (directory / "containerd.log").open("wb") as log:
            self._process = subprocess.Popen(["containerd", "--config", configuration], stdout=log, stderr=log)
        until("containerd answers", lambda: not self._ask("version").returncode)

    def load(self, image: str) -> None:
        archive = self._directory / "image.tar"
        _run("buildah", "push", "--quiet", f"localhost/{image}", f"docker-archive:{archive}:localhost/{image}")
        self.ctr("images", "import", str(archive))
        archive.unlink()

    def ctr(self, *arguments: str) -> str:
        ran = self._ask(*arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    @contextmanager
    def running(self, name: str, service: dict[str, Any], beside: int = 0) -> Iterator[int]:
        """Run a service of the compose file for the block; `beside` is a process with whose network it runs."""
        self.load(service["image"])
        reference = f"localhost/{service['image']}"
        with opened(reference) as image:
            entrypoint, user = image.config["Entrypoint"], image.config["User"]
        pid, log = self._directory / f"{name}.pid", self._directory / f"{name}.log"
        options = _options(service)
        if beside:
            options += ["--with-ns", f"network:/proc/{beside}/ns/net"]
        # Containers of a killed test must not block the next one.
        files = ["--pid-file", str(pid), "--log-uri", f"file://{log}", "--runc-root", str(self._directory / "runc")]
        self.ctr("run", "--detach", *files, *options, reference, name, *entrypoint, *service["command"])
        try:
            until(f"the {name} is ready:\n{log.read_text()}", lambda: self._is_healthy(name, service))
            process = int(pid.read_text())
            status = Path(f"/proc/{process}/status").read_text()
            assert re.search(rf"^Uid:\t{user.partition(':')[0]}\t", status, re.MULTILINE)
            yield process
        finally:
            self._ask("tasks", "kill", "--signal", "SIGTERM", name)
            until(
                f"the {name} has ended", lambda: not re.search(rf"^{name} .*RUNNING", self.ctr("tasks", "list"), re.M)
            )
            self.ctr("containers", "delete", name)

    def _is_healthy(self, name: str, service: dict[str, Any]) -> bool:
        _, *command = service["healthcheck"]["test"]
        return not self._ask("tasks", "exec", "--exec-id", f"health-{os.urandom(4).hex()}", name, *command).returncode

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        # The directory holds a copy of both images.
        shutil.rmtree(self._directory / "root", ignore_errors=True)

    def _ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", "--address", str(self._socket), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)


def _options(service: dict[str, Any]) -> list[str]:
    """Return a service's options for `ctr run`; fail if another option would change what the container may do."""
    told = {"image", "build", "command", "environment", "ports", "healthcheck", "stop_grace_period"}
    options = ["--seccomp"]
    for key, value in service.items():
        match key:
            case "read_only":
                options += ["--read-only"]
            case "cap_drop":
                assert value == ["ALL"]
                options += [word for name in _CAPABILITIES for word in ("--cap-drop", f"CAP_{name}")]
            case "security_opt":
                # This is ctr's default.
                assert value == ["no-new-privileges:true"]
            case "tmpfs":
                for place in value:
                    directory, _, how = place.partition(":")
                    how = f"nosuid:nodev:{how.replace(',', ':')}"
                    options += ["--mount", f"type=tmpfs,src=tmpfs,dst={directory},options={how}"]
            case "shm_size":
                options += ["--mount", f"type=tmpfs,src=shm,dst=/dev/shm,options=nosuid:nodev:size={_bytes(value)}"]
            case "mem_limit":
                options += ["--memory-limit", str(_bytes(value))]
            case _:
                assert key in told, key
    return options + [word for name, value in service["environment"].items() for word in ("--env", f"{name}={value}")]


def _bytes(text: str) -> int:
    return int(text[:-1]) * _BYTES[text[-1]]


def _run(*command: str, directory: Path | None = None) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=directory)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    started = Engine(tmp_path_factory.mktemp("containerd"))
    yield started
    started.stop()


def test_a_spark_of_the_laptop_runs_functions_and_writes_files(engine: Engine, tmp_path: Path) -> None:
    told = services()
    with ExitStack() as stack:
        pool = stack.enter_context(engine.running("pool", told["pool"]))
        stack.enter_context(engine.running("writer", told["writer"], beside=pool))
        inside = ["nsenter", f"--net=/proc/{pool}/ns/net", sys.executable, "-c", _SPARK, str(tmp_path / "doubled")]
        assert _run(*inside, directory=REPOSITORY).splitlines()[-1] == "sum 999000"
    assert list((tmp_path / "doubled").glob("*.parquet"))
