# SPDX-License-Identifier: Apache-2.0
"""`updraft tokens`: create the Secrets from which pools and writers read their tokens, unless they exist."""

import secrets
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict
from pydantic_settings import CliPositionalArg

from updraft.service.settings import setting
from updraft_cli.cluster import Cluster, ClusterError
from updraft_cli.output import print_json, print_line

_RANDOM_BYTES = 36
# Keys of a Secret: the tokens that a service accepts, one a line, and the token that a client presents.
_FILES = ("tokens", "token")


class Tokens(BaseModel):
    """Create Secrets with a new token each. Existing Secrets stay as they are, so the command can be run again.

    Each Secret has the key `tokens`, which a pool or a writer reads, and the key `token`, which its clients read. The
    chart runs this in the cluster, so that no manifest contains a token. The tokens are not printed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    examples: ClassVar[str] = """examples:
  updraft tokens air-pool-default-token air-writer-token --namespace data
  updraft tokens air-pool-default-token --namespace data --copies spark/air-pool-default-token
"""

    names: CliPositionalArg[list[str]] = setting("Names of the Secrets.", min_length=1)
    owned: bool = setting(
        "Make each Secret's owner the service account of the same name, which must exist, and copy its labels. "
        "Kubernetes then deletes the Secret together with the account. By default Secrets stay.",
        default=False,
    )
    copies: list[str] = setting(
        "Copy of one of these Secrets for jobs in another namespace, as namespace/name. It has only the key `token`; "
        "each run updates it. Can be repeated.",
        default=[],
    )
    namespace: str = setting("Kubernetes namespace; defaults to that of the current context.", default="")
    context: str = setting("Context of the kubeconfig; defaults to the current one.", default="")
    timeout_seconds: float = setting("Timeout of each call to the cluster.", default=10.0, unit="seconds", gt=0)
    output: Literal["table", "json"] = setting("Output format: lines for people, JSON for programs.", default="table")

    def cli_cmd(self) -> None:
        """Create the missing Secrets, and print which were created and which existed."""
        cluster = Cluster(self.context, self.namespace, self.timeout_seconds)
        made: list[str] = []
        kept: list[str] = []
        for name in self.names:
            token = secrets.token_urlsafe(_RANDOM_BYTES)
            owner = self._owner(cluster, name)
            (made if cluster.add_secret(name, dict.fromkeys(_FILES, token), owner) else kept).append(name)
            if self.output == "table":
                print_line(f"Secret {name} {'has a new token' if name in made else 'exists already and is unchanged'}.")
        for place in self.copies:
            namespace, _, name = place.partition("/")
            if name not in self.names:
                raise ClusterError(
                    f"--copies {place}: expected namespace/name, where name is one of the Secrets of this command"
                )
            there = cluster.within(namespace)
            copied = there.copy_secret(name, "token", cluster, self._owner(there, name))
            (made if copied else kept).append(place)
            if self.output == "table":
                print_line(f"Secret {name} in {namespace} {'has the token' if copied else 'has the token already'}.")
        if self.output == "json":
            print_json({"made": made, "kept": kept})

    def _owner(self, cluster: Cluster, name: str) -> Any:
        """Return the service account that owns a Secret if --owned is set; raises ClusterError if it is missing."""
        return cluster.service_account(name) if self.owned else None
