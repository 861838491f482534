# SPDX-License-Identifier: Apache-2.0
"""Options shared by several commands."""

import os
from pathlib import Path
from typing import Literal, Self, cast

from pydantic import BaseModel, ConfigDict, model_validator

from updraft.client import PoolClient
from updraft.client.connection import ENVIRONMENT_PREFIX, ConnectionOptions
from updraft.client.credentials import Credentials, token_in
from updraft.client.endpoint import Endpoint
from updraft.client.log_key import default_file, make_secret
from updraft.service.settings import setting
from updraft_cli.service import Service


class EndpointOptions(BaseModel):
    """Options that name a service and its credentials."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str = setting(
        "A pool or a writer: grpc://host:port, grpc+tls://host:port or grpc+unix:///path.", default=""
    )
    token_file: Path | None = setting(
        "File with the service's token in its first line; # starts a comment.", default=None
    )
    ca_file: Path | None = setting(
        "PEM file with the authorities to trust for the service's certificate; defaults to those of this machine.",
        default=None,
    )
    certificate_file: Path | None = setting("PEM file with this client's certificate, for mutual TLS.", default=None)
    key_file: Path | None = setting("PEM file with the private key of that certificate.", default=None)

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if self.endpoint:
            Endpoint.parse(self.endpoint)
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("--certificate-file and --key-file go together")
        return self

    @property
    def credentials(self) -> Credentials:
        """Token and TLS files; raises CredentialsError."""
        token = token_in(self.token_file) if self.token_file is not None else ""
        return Credentials(token, self.ca_file, self.certificate_file, self.key_file)


class ClientOptions(EndpointOptions):
    """Options of commands that act as a client of one pool; environment variables replace missing options."""

    @model_validator(mode="after")
    def _a_pool_is_known(self) -> Self:
        endpoint = self.endpoint or os.environ.get(f"{ENVIRONMENT_PREFIX}ENDPOINT")
        if not endpoint:
            raise ValueError(f"name a pool with --endpoint, or set {ENVIRONMENT_PREFIX}ENDPOINT")
        Endpoint.parse(endpoint)
        return self

    def connection(self, *names: str) -> ConnectionOptions:
        """Return the options of a client's connection: the endpoint's options, and those of `names` that are set."""
        wanted = ("endpoint", "token_file", "ca_file", "certificate_file", "key_file", *names)
        return cast("ConnectionOptions", {name: value for name in wanted if (value := getattr(self, name))})


class ViewOptions(ClientOptions):
    """Options of commands that show what a client's own calls do in a pool."""

    all: bool = setting(
        "Show the calls of all clients. This requires an identity with the scope admin; for profiles, a pool that was "
        "started with --allow-remote-stacks is enough.",
        default=False,
    )

    def client(self) -> PoolClient:
        """Return a client that can prove which calls are this user's."""
        make_secret(log_key_file())
        return PoolClient(**self.connection())


def log_key_file() -> Path | None:
    """Return the file with this user's secret for logs and profiles."""
    named = os.environ.get(f"{ENVIRONMENT_PREFIX}LOG_KEY_FILE")
    return Path(named) if named else default_file(os.environ)


class Options(EndpointOptions):
    """Options of commands that ask services."""

    timeout_seconds: float = setting(
        "Timeout of each call to a service or to the cluster.", default=10.0, unit="seconds", gt=0
    )
    output: Literal["table", "json"] = setting("Output format: a table for people, JSON for programs.", default="table")

    def service(self) -> Service:
        """Return a connection to the endpoint; raises CredentialsError."""
        return Service(Endpoint.parse(self.endpoint), self.credentials, self.timeout_seconds)


class PoolOptions(Options):
    """Options of commands that ask one pool."""

    @model_validator(mode="after")
    def _a_pool_is_named(self) -> "PoolOptions":
        if not self.endpoint:
            raise ValueError("name a pool with --endpoint")
        return self


class ClusterOptions(Options):
    """Options of commands that find services in a cluster."""

    namespace: str = setting("Kubernetes namespace; defaults to that of the current context.", default="")
    release: str = setting("Name of the Helm release; defaults to all releases of the chart.", default="")
    context: str = setting("Context of the kubeconfig; defaults to the current one.", default="")
