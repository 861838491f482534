# SPDX-License-Identifier: Apache-2.0
"""`updraft functions`: the registered functions of pools, and whether pools allow session functions."""

from typing import Any, ClassVar

from pydantic import Field
from pydantic_settings import CliApp, CliPositionalArg, CliSubCommand

from updraft.service.settings import setting
from updraft_cli.cluster import Cluster, ClusterError
from updraft_cli.described_function import at_fault, described
from updraft_cli.options import ClusterOptions, PoolOptions
from updraft_cli.output import print_json, print_line, print_table
from updraft_cli.service import Status


class Describe(PoolOptions):
    """Print a function's signature, what it does, its versions, and how it is called.

    A pod of a cluster is reached through `kubectl port-forward POD 8815`.
    """

    examples: ClassVar[str] = """examples:
  updraft functions describe discount --endpoint grpc://127.0.0.1:8815
  updraft functions describe text.slug@2 --endpoint grpc://127.0.0.1:8815 --output json
"""

    name: CliPositionalArg[str] = setting("The function's name, or NAME@VERSION for one of its versions.")

    def cli_cmd(self) -> None:
        """Print the description."""
        with self.service() as service:
            functions = service.functions()
        versions = described(self.name, functions)
        if not versions:
            names = ", ".join(sorted({function.name for function in functions})) or "none"
            raise ClusterError(f"{self.endpoint} has no function {self.name}; it has {names}")
        if self.output == "json":
            print_json([version.report() for version in versions])
            return
        for number, version in enumerate(versions):
            if number:
                print_line()
            for line in version.lines():
                print_line(line)


class Functions(ClusterOptions):
    """List the registered functions of pools, and whether session functions are allowed.

    In a cluster this asks one ready pod of each pool, since all pods of a pool have the same functions.
    """

    examples: ClassVar[str] = """examples:
  updraft functions --namespace data
  updraft functions --endpoint grpc://127.0.0.1:8815
  updraft functions describe discount --endpoint grpc://127.0.0.1:8815
"""

    describe: CliSubCommand[Describe] = Field(description="Print what a caller needs to know about a function.")

    def cli_cmd(self) -> None:
        """Print the table, or run the subcommand."""
        if self.describe is not None:
            CliApp.run_subcommand(self)
            return
        pools = self._at_the_endpoint() if self.endpoint else self._in_the_cluster()
        if self.output == "json":
            print_json([{"pool": pool, **_functions(status)} for pool, status in pools.items()])
            return
        rows = [
            (
                pool,
                function["name"],
                function["version"],
                # The status.json of an old pool does not say whether a fault is final.
                at_fault(function["fault"], is_final=function.get("fault_is_final", False))
                if function["fault"]
                else function["doc"].partition("\n")[0],
            )
            for pool, status in pools.items()
            for function in status["functions"]
        ]
        print_table(("pool", "function", "version", "what it does"), rows)
        print_line()
        for pool, status in pools.items():
            allowed = "allowed" if status["session_functions_allowed"] else "refused"
            condition = " if their driver has signed them" if status["signatures_required"] else ""
            print_line(f"{pool}: functions that Spark sessions ship are {allowed}{condition}.")
            if fault := status.get("reload_fault"):
                print_line(f"{pool}: newer functions were refused, so the pool still serves these: {fault}")

    def _at_the_endpoint(self) -> dict[str, Status]:
        with self.service() as service:
            status = service.status()
        if "functions" not in status:
            raise ClusterError(f"{self.endpoint} is a writer: it has no functions")
        return {self.endpoint: status}

    def _in_the_cluster(self) -> dict[str, Status]:
        cluster = Cluster(self.context, self.namespace, self.timeout_seconds)
        pools: dict[str, Status] = {}
        silent: dict[str, str] = {}
        for pod in cluster.pods(self.release):
            pool = f"{pod.release}/{pod.component}"
            if pod.component == "writer" or pool in pools or not pod.ready:
                continue
            status = cluster.status(pod)
            if isinstance(status, str):
                silent[pool] = status
            else:
                pools[pool] = status
        if not pools:
            reasons = "; ".join(f"{pool} {reason}" for pool, reason in silent.items()) or "no pod is ready"
            raise ClusterError(f"no pool in namespace {cluster.namespace} answers: {reasons}")
        return pools


def _functions(status: Status) -> dict[str, Any]:
    return {name: status[name] for name in ("functions", "session_functions_allowed", "signatures_required")}
