# SPDX-License-Identifier: Apache-2.0
"""`updraft drain`: let a pod, or the service at an endpoint, finish its work and stop."""

from typing import ClassVar

from pydantic import model_validator
from pydantic_settings import CliPositionalArg

from updraft.service.settings import setting
from updraft_cli.cluster import Cluster
from updraft_cli.commands.status import load_of
from updraft_cli.options import ClusterOptions
from updraft_cli.output import print_json, print_line


class Drain(ClusterOptions):
    """Drain a pod: it leaves the Service, finishes its exchanges or files, and ends; its Deployment starts another one.

    The command evicts the pod, as draining its node would, and so respects a PodDisruptionBudget: if too few other pods
    are ready, the cluster refuses and nothing happens. With --endpoint the command asks the service itself, which
    refuses unless it was started with --allow-remote-drain; otherwise send SIGTERM to its process.
    """

    examples: ClassVar[str] = """examples:
  updraft drain air-updraft-pool-default-7d4b9c8f6-x2x9p --namespace data
  updraft drain --endpoint grpc://127.0.0.1:8815 --token-file token
"""

    pod: CliPositionalArg[str] = setting("Name of the pod.", default="")
    wait_seconds: float = setting(
        "How long to wait for the pod to end; 0 does not wait.", default=600.0, unit="seconds", ge=0
    )

    @model_validator(mode="after")
    def _one_is_named(self) -> "Drain":
        if bool(self.pod) == bool(self.endpoint):
            raise ValueError("name a pod, or a service with --endpoint")
        return self

    def cli_cmd(self) -> None:
        """Drain the pod or the service, and print the progress."""
        if self.endpoint:
            with self.service() as service:
                service.drain()
            self._done(self.endpoint, "is draining: it finishes its work and accepts nothing new")
            return
        cluster = Cluster(self.context, self.namespace, self.timeout_seconds)
        cluster.pod(self.pod)
        cluster.evict(self.pod)
        if not self.wait_seconds:
            self._done(self.pod, "is draining")
            return
        said = ""
        for status in cluster.watch_end(self.pod, self.wait_seconds):
            if not isinstance(status, str) and self.output == "table" and said != load_of(status):
                said = load_of(status)
                print_line(f"{self.pod}: {status['state']}, {said}")
        self._done(self.pod, "has ended")

    def _done(self, name: str, what: str) -> None:
        if self.output == "json":
            print_json({"drained": name, "result": what})
        else:
            print_line(f"{name} {what}.")
