# SPDX-License-Identifier: Apache-2.0
"""A Prometheus on this machine that reads services as it would read pods."""

from __future__ import annotations

import json
import math
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.support.waiting import until

NAMESPACE = "data"
_START_SECONDS = 60
_STOP_SECONDS = 10


class Prometheus:
    """Context manager around one server; `targets` are addresses of metrics by the pod that they stand for."""

    def __init__(self, directory: Path, targets: Mapping[str, str]) -> None:
        groups = [
            {"targets": [target], "labels": {"namespace": NAMESPACE, "pod": pod}} for pod, target in targets.items()
        ]
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "updraft", "static_configs": groups}],
        }
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._directory = directory
        self._address = f"127.0.0.1:{_free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def samples(self, query: str) -> list[float]:
        """The numbers that a query gives now; raises ValueError for one that Prometheus refuses."""
        try:
            with urlopen(f"http://{self._address}/api/v1/query?{urlencode({'query': query})}", timeout=10) as page:
                answer: dict[str, Any] = json.load(page)
        except HTTPError as refused:
            raise ValueError(json.load(refused)["error"]) from None
        values = (float(sample["value"][1]) for sample in answer["data"]["result"])
        return [value for value in values if not math.isnan(value)]

    def __enter__(self) -> Self:
        command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=warn"]
        self._process = subprocess.Popen(
            [*command, f"--web.listen-address={self._address}"], cwd=self._directory, stdin=subprocess.DEVNULL
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
            urlopen(f"http://{self._address}/-/ready", timeout=10).close()
        except URLError:
            return False
        up = self.samples("up")
        return bool(up) and all(up)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
