# SPDX-License-Identifier: Apache-2.0
"""Zygote's ends of the model channels. Over its model channel, a worker asks for connections to model processes.

Workers are not trusted. The zygote accepts no descriptors from a worker, and never waits for a worker. If a worker asks
again before the zygote has answered, the zygote closes the worker's model channel.
"""

import contextlib
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from updraft_server.ipc.packet_codec import PacketError
from updraft_server.worker.model import channel as packets
from updraft_server.zygote.forks import enlarge_buffer, refuse_descriptors
from updraft_server.zygote.model_replica import Replica

Watch = Callable[[socket.socket | int, Callable[[], None]], None]
Unwatch = Callable[[socket.socket | int], None]

# Longest time that a worker waits to learn how a model process ended. The worker's connection may close a moment before
# the process ends.
_FATE_SECONDS = 2.0
_KNOWN_FATES = 256
_SOCKET_BUFFER_BYTES = 1024 * 1024


class ModelChannels:
    """All model channels of a zygote."""

    def __init__(
        self,
        on_connect: Callable[[str, str, str], None],
        on_close: Callable[[str], None],
        watch: Watch,
        unwatch: Unwatch,
    ) -> None:
        """Prepare to open model channels.

        Args:
            on_connect: Called with the id of a worker, and the name and version of the function that the worker wants
                to call. The callee answers with `connect` or `refuse`.
            on_close: Called with the id of a worker whose channel was closed.
            watch: Makes the zygote's loop call a function whenever a socket or descriptor can be read.
            unwatch: Undoes `watch`; idempotent.
        """
        self._on_connect = on_connect
        self._on_close = on_close
        self._watch = watch
        self._unwatch = unwatch
        self._channels: dict[str, socket.socket] = {}
        self._asking: set[str] = set()
        """Workers whose question has no answer yet."""
        self._fates: OrderedDict[str, str] = OrderedDict()
        """Verb phrases that describe how processes ended, by the processes' ids. Only the latest ends are kept."""
        self._curious: dict[str, tuple[str, float]] = {}
        """Workers that have asked how a process ended, each with the id of that process and the deadline for the
        answer."""

    @property
    def wait_seconds(self) -> Sequence[float]:
        """Time until each pending answer is due."""
        now = time.monotonic()
        return [max(0.0, until_seconds - now) for _, until_seconds in self._curious.values()]

    def open(self, worker: str) -> socket.socket:
        """Open a model channel for a worker that is about to be forked, and return the worker's end; raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(0)
        # The zygote might block when it closes the last copy of a socket that a worker has passed (SO_LINGER).
        refuse_descriptors(ours)
        self._channels[worker] = ours
        self._watch(ours, lambda: self._answer(worker))
        return theirs

    def shut(self, worker: str) -> None:
        """Close the model channel of a worker that has ended or must not use it any more. Idempotent."""
        ours = self._channels.pop(worker, None)
        if ours is not None:
            self._unwatch(ours)
            ours.close()
        self._asking.discard(worker)
        self._curious.pop(worker, None)
        self._on_close(worker)

    def close(self) -> None:
        """Close the model channels in a forked process. The zygote's own copies stay open."""
        for ours in self._channels.values():
            ours.close()

    def connect(self, worker: str, replica: Replica) -> bool:
        """Connect a worker to a process. If the process accepts no connection now, return False and send no answer."""
        with contextlib.ExitStack() as ends:
            try:
                workers_end, models_end = map(ends.enter_context, socket.socketpair())
            except OSError as error:
                self.refuse(worker, f"cannot be reached: {error.strerror}", may_retry=True)
                return True
            for end in (workers_end, models_end):
                enlarge_buffer(end, _SOCKET_BUFFER_BYTES)
            if not replica.attach(models_end):
                return False
            self._say(worker, packets.Connected(replica.id), [workers_end.fileno()])
            return True

    def refuse(self, worker: str, reason: str, *, may_retry: bool) -> None:
        """Tell a worker why it receives no connection. `reason` follows the function's name in a sentence."""
        self._say(worker, packets.Refused(reason, may_retry))

    def tell_fate(self, model: str, how: str) -> None:
        """Record how a process ended, and tell the workers that have asked how it ended."""
        self._fates[model] = how
        while len(self._fates) > _KNOWN_FATES:
            self._fates.popitem(last=False)
        for worker in [worker for worker, (name, _) in self._curious.items() if name == model]:
            self._tell(worker, model)

    def turn(self) -> None:
        """Answer the workers whose wait for the end of a process has reached its deadline."""
        now = time.monotonic()
        for worker, (model, until_seconds) in list(self._curious.items()):
            if now >= until_seconds:
                self._tell(worker, model)

    def _tell(self, worker: str, model: str) -> None:
        self._curious.pop(worker, None)
        self._say(worker, packets.Fate(self._fates.get(model, "has hung up")))

    def _answer(self, worker: str) -> None:
        if worker not in self._channels:
            return
        try:
            data = self._channels[worker].recv(packets.MAX_PACKET_BYTES)
            question = packets.decode(data) if data and worker not in self._asking else None
        except BlockingIOError:
            return
        except (OSError, PacketError):
            question = None
        if question is not None:
            self._asking.add(worker)
        match question:
            case packets.Connect(str(name), str(version)):
                self._on_connect(worker, name, version)
            case packets.AskFate(str(model)):
                self._curious[worker] = (model, time.monotonic() + _FATE_SECONDS)
                if model in self._fates:
                    self._tell(worker, model)
            case _:
                self.shut(worker)

    def _say(self, worker: str, packet: packets.Packet, descriptors: Sequence[int] = ()) -> None:
        self._asking.discard(worker)
        ours = self._channels.get(worker)
        if ours is None:
            return
        try:
            socket.send_fds(ours, [packets.encode(packet)], list(descriptors))
        except OSError:
            # The worker has ended, or does not read.
            self.shut(worker)
