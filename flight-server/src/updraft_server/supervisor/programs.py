# SPDX-License-Identifier: Apache-2.0
"""The three programs of `updraft-server`: a front alone, workers alone, and a whole pool."""

import os
import signal
import socket
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from updraft.service.child import Child, describe_exit
from updraft.service.parent import stdin_has_ended
from updraft_server.ipc import control, settings_handover
from updraft_server.ipc.worker_records import WorkerRecords
from updraft_server.ipc.zygote_packets import EXIT_IMAGE_BROKEN, EXIT_LAYER_MISSING
from updraft_server.linux.descendants import children
from updraft_server.settings import FrontSettings, ServeSettings, WorkersSettings
from updraft_server.supervisor.front_call import FrontCall, News
from updraft_server.supervisor.runtime_directory import FRONT_SOCKET
from updraft_server.supervisor.stderr import say
from updraft_server.supervisor.supervisor import EXIT_FAILURE, EXIT_REFUSED, LAST_DEATHS_SECONDS, Phase, Supervisor
from updraft_server.supervisor.zygote_child import ZygoteChild
from updraft_server.supervisor.zygote_settings import zygote_settings
from updraft_server.supervisor.zygotes import FRONT, ZYGOTE, Zygotes

_ARTIFACTS = "artifacts"
_START_UP_SECONDS = 10.0


class FrontStarts:
    """Starter of fronts. It also decides whether the program ends when a front ends."""

    def __init__(self, settings: FrontSettings, directory: Path, neighbours_token_file: Path | None) -> None:
        """Prepare to start fronts.

        Args:
            settings: Settings of each front.
            directory: Directory for the artifacts.
            neighbours_token_file: File with the token that this machine's users need for metrics and status; None if
                they need no token.
        """
        self._settings = settings
        # Make the path absolute, because workers have other working directories.
        self._artifacts_path = directory.absolute() / _ARTIFACTS
        self._neighbours_token_file = neighbours_token_file
        self._started_seconds = 0.0

    def start(self, descriptors: dict[str, int]) -> Child:
        """Start a front that inherits `descriptors`; each key is the environment variable for a descriptor's number."""
        environment = {
            **os.environ,
            settings_handover.FRONT_SETTINGS_VARIABLE: settings_handover.hand_down(self._settings),
            settings_handover.ARTIFACTS_VARIABLE: str(self._artifacts_path),
            settings_handover.NEIGHBOURS_TOKEN_VARIABLE: str(self._neighbours_token_file or ""),
            **{name: str(descriptor) for name, descriptor in descriptors.items()},
        }
        self._started_seconds = time.monotonic()
        return Child("updraft_server.front.process", environment, list(descriptors.values()))

    def status_of_end(self, code: int, phase: Phase) -> int | None:
        """Return the program's exit status after its front has ended, or None if the front crashed."""
        # If SIGTERM kills a front in a drain, the front had not installed its handler yet, so it had not served a
        # client.
        if code == 0 or (phase is Phase.DRAINING and code == -signal.SIGTERM):
            return 0
        if phase is Phase.DRAINING:
            say(f"the front {describe_exit(code)} while it drained")
            return EXIT_FAILURE
        is_young = time.monotonic() - self._started_seconds < _START_UP_SECONDS
        return EXIT_REFUSED if code > 0 and is_young else None

    def starter_has_gone(self) -> bool:
        """Return whether the program is configured to end with standard input, and standard input has ended."""
        return self._settings.end_with_stdin and stdin_has_ended()


class FrontSupervisor(Supervisor):
    """Supervisor of a front whose workers run elsewhere. The workers' side connects to a socket that fronts inherit."""

    def __init__(self, settings: FrontSettings, directory: Path, neighbours_token_file: Path | None = None) -> None:
        super().__init__(settings.drain_timeout_seconds)
        self._front = FrontStarts(settings, directory, neighbours_token_file)
        self._socket_path = directory / FRONT_SOCKET
        self._known = control.WorkersSecret.made(somebody=self._socket_path.exists())
        self._listener = control.listener_at(self._socket_path)

    def run(self) -> int:
        """Supervise until the program has drained or has to give up; returns its exit status."""
        try:
            return super().run()
        finally:
            # If the socket's file remained, the next run of this program would assume that the workers' side of this
            # run may still exist. But that side has ended, or ends when it loses its connection to this program.
            self._socket_path.unlink(missing_ok=True)

    def _start(self) -> None:
        descriptors = {
            control.CONTROL_VARIABLE: self._listener.fileno(),
            control.KNOWN_VARIABLE: self._known.descriptor,
        }
        self._children[FRONT] = self._front.start(descriptors)

    def _ended(self, name: str, code: int) -> int | None:
        self._kill_leftovers()
        status = self._front.status_of_end(code, self._phase)
        if status is None and self._crashed(f"the {name} {describe_exit(code)}"):
            return EXIT_FAILURE
        if status is None:
            self._start()
        return status

    def _advance(self) -> None:
        """Do nothing: the workers' side connects to the listener by itself."""

    def _reload(self) -> None:
        say("the workers' side loads the functions: send the signal there")

    def _starter_has_gone(self) -> bool:
        return self._phase is Phase.RUNNING and self._front.starter_has_gone()


class _WithWorkers(Supervisor):
    """Supervisor of zygotes and their workers. Their front runs here or elsewhere."""

    def __init__(self, settings: WorkersSettings, directory: Path, hidden: Sequence[Path]) -> None:
        """Prepare to start zygotes.

        Args:
            settings: Settings of the zygotes and workers.
            directory: Directory for the zygote's files.
            hidden: Directories that no worker may see.
        """
        super().__init__(settings.drain_timeout_seconds)
        self._zygotes = Zygotes(zygote_settings(settings, directory, {*hidden}), self._children)
        self._clearing_deadline_seconds: float | None = None
        """Deadline for the workers' processes to end after their front was lost; None at other times."""

    @abstractmethod
    def _connect_both(self) -> None:
        """Connect the front and the zygote if both are running."""

    @abstractmethod
    def _start_anew(self) -> None:
        """Start again after the workers of a lost front have ended."""

    def _start_zygote(self) -> None:
        self._zygotes.start()
        self._connect_both()

    def _tick(self) -> None:
        if self._phase is Phase.RUNNING and self._zygotes.succeed():
            self._connect_both()
        super()._tick()

    def _reload(self) -> None:
        # A zygote that has not been started yet will load the current code anyway.
        if self._phase is Phase.RUNNING and ZYGOTE in self._children:
            self._zygotes.reload()

    def _end_stuck_children(self) -> None:
        super()._end_stuck_children()
        for name, child in self._children.items():
            if isinstance(child, ZygoteChild) and child.watch.patience:
                say(f"the {name} is not ready yet: {child.watch.patience}")

    def _kill_stuck(self, name: str, child: Child) -> None:
        if not self._zygotes.kill_excessive(name, child):
            super()._kill_stuck(name, child)

    def _ended(self, name: str, code: int) -> int | None:
        if name == ZYGOTE:
            return self._zygote_ended(code)
        if self._zygotes.other_ended(name, code, is_wanted=self._phase is not Phase.DRAINING):
            self._adopt_workers()
        return None

    def _zygote_ended(self, code: int) -> int | None:
        if code in (EXIT_IMAGE_BROKEN, EXIT_LAYER_MISSING) and not self._zygotes.is_running_code:
            return EXIT_REFUSED
        if self._phase is Phase.DRAINING and FRONT not in self._children:
            # The zygote was asked to end after its last front. If SIGTERM killed the zygote, it had not installed its
            # handler yet.
            return 0 if code in (0, -signal.SIGTERM) else EXIT_FAILURE
        if fault := self._zygotes.ended(code):
            # This is not counted as a crash, because the next zygote leaves this load out and gets further.
            say(f"{fault}: restarting the zygote without it")
        elif self._crashed(f"the zygote {describe_exit(code)}"):
            return EXIT_FAILURE
        self._adopt_workers()
        self._start_zygote()
        return None

    def _adopt_workers(self) -> None:
        # Read the records only once, when the workers have just become children of this process. A process whose record
        # appears later must still be killed.
        self._adopted_workers = WorkerRecords(Path(self._zygotes.settings.workers_directory)).living()

    def _abandon_workers(self) -> None:
        """Kill workers that outlived their zygote and have now lost their front too."""
        self._adopted_workers.clear()
        self._kill_leftovers()

    def _clear_workers(self) -> None:
        """Kill all processes but the front, because processes that ran user code must not connect to another front."""
        self._clearing_deadline_seconds = time.monotonic() + LAST_DEATHS_SECONDS
        self._zygotes.close_socket()
        self._zygotes.drop_successor()
        # Do not count the ends of zygotes as crashes: kill and reap zygotes like leftover processes.
        for name in self._children.keys() - {FRONT}:
            self._children.pop(name).forget()
        self._kill_leftovers()

    def _advance(self) -> None:
        """Start anew if the workers' processes have ended after the kill, or if their deadline has passed."""
        if self._clearing_deadline_seconds is None:
            return
        left = set(children()) - {child.pid for child in self._children.values()}
        if left and time.monotonic() < self._clearing_deadline_seconds:
            return
        if left:
            say(f"the processes {sorted(left)} have not ended, although they were killed: continuing without them")
        self._clearing_deadline_seconds = None
        self._start_anew()


class WorkersSupervisor(_WithWorkers):
    """Supervisor of workers whose front runs elsewhere. It connects to the current front and to each later front."""

    def __init__(self, settings: WorkersSettings, directory: Path, front_directory: Path) -> None:
        """Look for fronts in `front_directory`, which has the same path on the front's side."""
        super().__init__(settings, directory, [directory, front_directory])
        self._socket_path = front_directory / FRONT_SOCKET
        self._front_call = FrontCall(self._socket_path)

    def _start(self) -> None:
        self._look_for_front()

    def _start_anew(self) -> None:
        self._look_for_front()

    def _advance(self) -> None:
        super()._advance()
        self._look_for_front()

    def _connect_both(self) -> None:
        if self._front_call.control is not None and self._zygotes.zygote_socket is not None:
            # The front's process id means nothing in this PID namespace.
            control.connect_both(self._zygotes.zygote_socket, self._front_call.control, 0)

    def _look_for_front(self) -> None:
        """Check the connection to the front, or try to connect to a front. A zygote starts only when connected."""
        if self._clearing_deadline_seconds is not None:
            return
        if self._front_call.look() is News.LOST:
            say("the front has gone away")
            self._abandon_workers()
            if self._phase is not Phase.DRAINING:
                self._clear_workers()
                return
        if self._phase is Phase.DRAINING or self._front_call.control is not None:
            return
        match self._front_call.call():
            case News.TAKEN if ZYGOTE in self._children:
                self._connect_both()
            case News.TAKEN:
                self._start_zygote()
            case News.MISSING:
                say(f"the front cannot be reached at {self._socket_path}: trying again")


class PoolSupervisor(_WithWorkers):
    """Supervisor of a front and its workers."""

    def __init__(self, settings: ServeSettings, directory: Path, neighbours_token_file: Path | None = None) -> None:
        super().__init__(settings, directory, [directory])
        self._front = FrontStarts(settings, directory, neighbours_token_file)
        self._control: socket.socket | None = None
        """Connection to the front."""

    def _start(self) -> None:
        self._start_front()
        self._start_zygote()

    def _start_anew(self) -> None:
        self._start_zygote()

    def _start_front(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control, fronts_end = control.packet_pair()
        with fronts_end:
            self._children[FRONT] = self._front.start({control.CONTROL_VARIABLE: fronts_end.fileno()})
        self._connect_both()

    def _connect_both(self) -> None:
        front = self._children.get(FRONT)
        if self._control is not None and self._zygotes.zygote_socket is not None:
            control.connect_both(self._zygotes.zygote_socket, self._control, front.pid if front is not None else 0)

    def _ended(self, name: str, code: int) -> int | None:
        return self._front_ended(code) if name == FRONT else super()._ended(name, code)

    def _front_ended(self, code: int) -> int | None:
        self._abandon_workers()
        status = self._front.status_of_end(code, self._phase)
        if status is not None:
            return status
        if self._crashed(f"the front {describe_exit(code)}"):
            return EXIT_FAILURE
        self._clear_workers()
        self._start_front()
        return None

    def _starter_has_gone(self) -> bool:
        return self._phase is Phase.RUNNING and self._front.starter_has_gone()
