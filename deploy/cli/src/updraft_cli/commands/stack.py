# SPDX-License-Identifier: Apache-2.0
"""`updraft stack`: print the Python stacks of a pool's workers."""

from typing import ClassVar

from pydantic_settings import CliPositionalArg

from updraft.service.settings import setting
from updraft_cli.options import PoolOptions
from updraft_cli.output import print_json, print_line


class Stack(PoolOptions):
    """Print the Python stacks of a worker's threads, or of all busy workers, while they keep working.

    Use it for functions that hang or are slow: no debugger or profiler can attach to a worker, because its memory is
    hidden. The pool refuses unless it was started with --allow-remote-stacks. Its status page shows the workers' ids.
    A pod of a cluster is reached through `kubectl port-forward POD 8815`.
    """

    examples: ClassVar[str] = """examples:
  updraft stack --endpoint grpc://127.0.0.1:8815
  updraft stack 3f9c21-4 --endpoint grpc://127.0.0.1:8815 --token-file token
"""

    worker: CliPositionalArg[str] = setting("Id of the worker; defaults to all busy workers.", default="")

    def cli_cmd(self) -> None:
        """Print the stacks."""
        with self.service() as service:
            stacks = service.stacks(self.worker)
        if self.output == "json":
            print_json(stacks)
            return
        for worker, stack in stacks.items():
            print_line(f"worker {worker}")
            for line in stack.splitlines() or ["  does not answer: it is stopped, or waits for a disk"]:
                print_line(line)
            print_line()
        if not stacks:
            print_line("No worker is busy.")
