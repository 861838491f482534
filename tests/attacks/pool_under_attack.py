# SPDX-License-Identifier: Apache-2.0
"""Real pool with secrets, an owner with an open exchange, and another owner who attacks."""

from __future__ import annotations

import json
import os
import pickle
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import grpc
import psutil
from pyspark import cloudpickle
from served_pool import Server

from tests.attacks import (
    alters,
    alters_processes,
    alters_rights,
    attempts,
    deployed_model,
    exhausts,
    floods,
    hides_memory,
    kills,
    lies,
    lingers,
    reads,
    reads_files,
    reads_network,
    survives,
    uses_time,
)
from tests.attacks.attempts import Verdict, carried, shifted, verdict_of
from tests.attacks.exchanges import BrokenExchangeError, Exchange
from tests.attacks.outsiders import Outsider
from tests.support.certificates import Authority
from tests.support.constants import NOTHING, with_constants
from tests.support.paths import REPOSITORY
from tests.support.web import fetched

_VICTIM, _ATTACKER, _LATER = "app-of-the-victim", "app-of-the-attacker", "app-that-comes-later"
_VICTIMS_BROADCAST, _OWN_BROADCAST = 1, 2


class PoolUnderAttack:
    """Pool with `workers` workers. If there are several, a victim's exchange holds one of them.

    Attempts run in exchanges of the kind `attacks_in`.
    """

    def __init__(
        self,
        directory: Path,
        workers: int,
        *arguments: str,
        constants: Mapping[str, object] = NOTHING,
        attacks_in: type[Exchange] = Exchange,
        **process: Any,
    ) -> None:
        self._attacks_in = attacks_in
        self._token = secrets.token_hex(16)
        self._authority = Authority(directory / "certificates")
        identity = self._authority.identity("127.0.0.1")
        tokens = directory / "tokens"
        tokens.write_text(self._token + "\n")
        runtime = directory / "runtime"
        # Let the pool import the batched function from here.
        environment = {**process.get("env", os.environ), "PYTHONPATH": str(REPOSITORY)}
        process["env"] = with_constants(directory, constants, environment)
        self.server = Server(
            directory,
            f"--workers={workers}",
            "--session-functions=unsigned",
            f"--runtime-directory={runtime}",
            f"--token-file={tokens}",
            f"--tls-certificate-file={identity.certificate}",
            f"--tls-key-file={identity.key}",
            f"--audit-file={directory}/audit",
            f"--functions={deployed_model.__name__}",
            f"--listen-unix={directory}/socket",
            *arguments,
            **process,
        )
        ready = self.server.ready()
        supervisor = psutil.Process(self.server.process.pid)
        self._channel = grpc.secure_channel(
            ready["listen"], grpc.ssl_channel_credentials(self._authority.certificate.read_bytes())
        )
        # Terminal of the user who started the pool.
        self._terminal = os.openpty()
        self._members = {"supervisor": supervisor.pid, "front": ready["front"], "zygote": ready["zygote"]}
        self.surroundings = SimpleNamespace(
            **self._members,
            supervisors_group=os.getpgid(supervisor.pid),
            is_root=os.getuid() == 0,
            tokens=str(tokens),
            key=str(identity.key),
            shifted_token=shifted(self._token),
            ready_file=str(self.server.ready_file),
            metrics=ready["metrics_listen"],
            admin=ready["admin_listen"],
            metrics_token=ready["metrics_token_file"],
            runtime=str(runtime),
            artifacts=str(runtime / "artifacts"),
            reversed_secret=secrets.token_hex(16),
            audit=f"{directory}/audit",
            callbacks_at_the_end=1000,
            terminal=os.ttyname(self._terminal[1]),
            model=deployed_model.NAME,
        )
        self._has_victim = workers > 1
        self._victim: Exchange | None = None

    def __enter__(self) -> Self:
        try:
            if self._has_victim:
                self._begin_victim()
            self._own_artifact()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin_victim(self) -> None:
        broadcast = self.victims_bytes = pickle.dumps(secrets.token_bytes(1000))
        self._victim = self._exchange(_VICTIM, _keeps_a_secret, {_VICTIMS_BROADCAST: broadcast})
        told = json.loads(self._victim.ask())
        self.surroundings.victim = told["pid"]
        self.surroundings.victims_file = told["file"]
        self.surroundings.victims_artifact = told["broadcast"]

    def _own_artifact(self) -> None:
        with self._exchange(_ATTACKER, _path_of_broadcast, {_OWN_BROADCAST: pickle.dumps(b"own")}) as own:
            self.surroundings.own_artifact = own.ask()

    def metrics(self) -> str:
        """Return the pool's Prometheus metrics."""
        token = Path(self.surroundings.metrics_token).read_text().strip()
        return fetched(f"http://{self.surroundings.metrics}/metrics", token=token)[0]

    def dropped_lines(self) -> int:
        """Return how many lines of function output the pool has dropped because of its limit."""
        found = re.search(r'^updraft_log_lines_dropped_total\{reason="flood"\} (\S+)$', self.metrics(), re.MULTILINE)
        return int(float(found[1])) if found else 0

    def exits(self, reason: str) -> int:
        """Return how many workers the pool has ended for this reason."""
        return int(self._status()["workers"]["exits"][reason])

    def states(self) -> list[str]:
        """Return the states of the pool's workers; a "stopped" worker uses no CPU until its next exchange."""
        return [worker["state"] for worker in self._status()["workers"]["living"]]

    def _status(self) -> Any:
        token = Path(self.surroundings.metrics_token).read_text().strip()
        return json.loads(fetched(f"http://{self.surroundings.metrics}/status.json", token=token)[0])

    def attempt(self, attempt: Callable[[Any], Any], *, application: str = _ATTACKER) -> Verdict:
        """Run the attempt in a separate exchange and return its verdict."""
        own = {_OWN_BROADCAST: pickle.dumps(b"own")} if application == _ATTACKER else None
        try:
            function = carried(attempt, self.surroundings)
            with self._exchange(application, function, own, self._attacks_in) as exchange:
                verdict = verdict_of(exchange.ask())
        except BrokenExchangeError as error:
            return Verdict(died=True, ended=str(error))
        return verdict

    def outsider(self) -> Outsider:
        """Return a client that has the pool's token."""
        return Outsider(self.server.ready()["listen"], self._authority.certificate.read_bytes(), self._token)

    def keep_victim_alive(self) -> None:
        """Send a keepalive for the victim. Needed if the pool's silence limit is short."""
        if self._victim is not None:
            self._victim.keep_alive()

    def later(self, attempt: Callable[[Any], Any]) -> Verdict:
        """Run the attempt as an owner who comes after all others."""
        return self.attempt(attempt, application=_LATER)

    def check_unharmed(self) -> None:
        """Check that the same processes live, the victim's exchange works, and the pool serves a newcomer."""
        ready = self.server.ready()
        assert {"front": ready["front"], "zygote": ready["zygote"]}.items() <= self._members.items()
        for name, pid in self._members.items():
            assert psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED), name
        if self._victim is not None:
            assert json.loads(self._victim.ask())["pid"] == self.surroundings.victim
        assert self.attempt(_is_well, application="app-of-a-newcomer") == Verdict(evidence="'well'")

    def close(self) -> None:
        """End the victim's exchange and the pool."""
        if self._victim is not None:
            self._victim.cancel()
        self._channel.close()
        # Kill the server, because processes that an attempt has stopped would never end on SIGTERM.
        self.server.process.kill()
        self.server.process.wait()
        for end in self._terminal:
            os.close(end)

    def _exchange(
        self, application: str, function: Callable[[Any], Any], broadcasts: Any, kind: type[Exchange] = Exchange
    ) -> Exchange:
        return kind(self._channel, self._token, application, function, broadcasts)


def _is_well(_: Any) -> str:
    return "well"


def _keeps_a_secret(column: Any) -> Any:
    import builtins
    import json
    import os
    import tempfile

    import pyarrow as pa
    from pyspark.broadcast import _broadcastRegistry

    if not hasattr(builtins, "kept"):
        file = tempfile.NamedTemporaryFile(mode="w", delete=False)
        file.write("a secret")
        file.flush()
        vars(builtins)["kept"] = file
    path = _broadcastRegistry[1]._path
    told = {"pid": os.getpid(), "file": vars(builtins)["kept"].name, "broadcast": path}
    return pa.array([json.dumps(told)] * len(column))


def _path_of_broadcast(column: Any) -> Any:
    import pyarrow as pa
    from pyspark.broadcast import _broadcastRegistry

    return pa.array([_broadcastRegistry[2]._path] * len(column))


_HERE = sys.modules[__name__]
_ATTEMPTS = (
    alters,
    alters_processes,
    alters_rights,
    exhausts,
    floods,
    hides_memory,
    kills,
    lies,
    lingers,
    reads,
    reads_files,
    reads_network,
    survives,
    uses_time,
)
for _module in (attempts, *_ATTEMPTS, _HERE):
    cloudpickle.register_pickle_by_value(_module)
