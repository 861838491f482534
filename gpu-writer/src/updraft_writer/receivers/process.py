# SPDX-License-Identifier: Apache-2.0
"""Process of a receiver, which the writer's process starts as `python -m updraft_writer.receivers.process`."""

import asyncio
import ctypes
import mmap
import os
import signal
import socket

from updraft.service.allocator import return_freed_memory
from updraft.service.heartbeat import Heartbeat
from updraft.service.lifecycle import keep_beating
from updraft.service.parent import follow_parent
from updraft.service.privileges import keep_few_capabilities
from updraft.service.telemetry import log_to_stderr
from updraft_writer.receivers.frames import StartUp
from updraft_writer.receivers.receiver import Receiver
from updraft_writer.settings import ServeSettings


async def _serve(settings: ServeSettings, start_up: StartUp, address: int, heartbeat: Heartbeat) -> None:
    receiver = Receiver(settings, address)
    connection = socket.socket(fileno=start_up.link_descriptor)
    connection.settimeout(0)
    await asyncio.get_running_loop().create_unix_connection(lambda: receiver.link, sock=connection)
    beating = asyncio.create_task(keep_beating(heartbeat))
    try:
        await receiver.run()
    finally:
        beating.cancel()
        await receiver.link.close()


def main() -> None:
    """Receive until the writer's process sends STOP or ends."""
    follow_parent()
    # Ignore signals to the whole process group: the writer's process then drains, and tells receivers when to stop.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    keep_few_capabilities()
    return_freed_memory()
    import uvloop

    start_up = StartUp.inherited()
    settings = ServeSettings.model_validate_json(start_up.settings)
    log_to_stderr(log_format=settings.log_format, level=settings.log_level, process="receiver")
    memory = mmap.mmap(start_up.memory_descriptor, 0)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    uvloop.run(_serve(settings, start_up, address, Heartbeat.inherited()))
    # Python's own exit would wait for gRPC's threads.
    os._exit(0)


if __name__ == "__main__":
    main()
