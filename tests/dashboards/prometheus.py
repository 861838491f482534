# SPDX-License-Identifier: Apache-2.0
"""A Prometheus on this machine that scrapes services as it would scrape pods, or the pods of a cluster."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.support.ports import free_ports
from tests.support.waiting import until

NAMESPACE = "data"
_START_SECONDS = 60
_STOP_SECONDS = 60


def services_at(targets: Mapping[str, str], namespace: str = NAMESPACE, *, token: str = "") -> dict[str, Any]:
    """Scrape targets by the pod that each stands for, with the labels that the operator would add."""
    return {
        **({"authorization": {"credentials": token}} if token else {}),
        "static_configs": [
            {"targets": [target], "labels": {"namespace": namespace, "pod": pod}} for pod, target in targets.items()
        ],
    }


class Prometheus:
    """Context manager around one server that scrapes the targets of `services_at`."""

    def __init__(self, directory: Path, services: Mapping[str, Any]) -> None:
        self._directory = directory
        self._configure(services)
        self.address = f"http://127.0.0.1:{next(free_ports())}"
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, services: Mapping[str, Any]) -> None:
        """Scrape these from now on: Debian's Prometheus cannot discover the pods of a cluster."""
        if self._configure(services):
            assert self._process is not None
            self._process.send_signal(signal.SIGHUP)

    def _configure(self, services: Mapping[str, Any]) -> bool:
        """Write the configuration, and return whether it changed."""
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "updraft", **services}]}
        file, text = self._directory / "prometheus.yml", yaml.safe_dump(config)
        if file.exists() and file.read_text() == text:
            return False
        file.write_text(text)
        return True

    def samples(self, query: str) -> list[float]:
        """The numbers that a query returns now; raises ValueError if Prometheus refuses it."""
        values = (float(sample["value"][1]) for sample in self._asked("query", query=query))
        return [value for value in values if not math.isnan(value)]

    def series(self, query: str, seconds: int) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Labels and points of each series of a query: seconds before now, as a negative number, and value."""
        now = time.time()
        lines = self._asked("query_range", query=query, start=now - seconds, end=now, step=1)
        return [(line["metric"], [(at - now, float(value)) for at, value in line["values"]]) for line in lines]

    def _asked(self, what: str, **parameters: object) -> list[dict[str, Any]]:
        try:
            with urlopen(f"{self.address}/api/v1/{what}?{urlencode(parameters)}", timeout=60) as page:
                result: list[dict[str, Any]] = json.load(page)["data"]["result"]
        except HTTPError as refused:
            raise ValueError(json.load(refused)["error"]) from None
        return result

    def __enter__(self) -> Self:
        command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=warn"]
        self._process = subprocess.Popen(
            [*command, f"--web.listen-address={self.address.removeprefix('http://')}"],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
        )
        try:
            until("Prometheus has read every service", self._reads_all, timeout_seconds=_START_SECONDS)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_STOP_SECONDS)

    def _reads_all(self) -> bool:
        try:
            urlopen(f"{self.address}/-/ready", timeout=60).close()
        except URLError:
            return False
        up = self.samples("up")
        return bool(up) and all(up)
