# SPDX-License-Identifier: Apache-2.0
"""Start of a zygote: it loads the image that every worker starts with, and then runs its loop."""

import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from updraft.service.allocator import retain_freed_batches
from updraft.service.heartbeat import Heartbeat
from updraft.service.lossy_streams import protect_standard_streams
from updraft_server.ipc import zygote_packets as packets
from updraft_server.ipc.load import LoadingNote
from updraft_server.ipc.worker_records import WorkerRecords
from updraft_server.linux.capabilities import close_bounding_set
from updraft_server.linux.out_of_memory import OutOfMemoryScore
from updraft_server.linux.process_control import name_process
from updraft_server.sandbox.owner_files import OwnerFiles
from updraft_server.sandbox.shared_mappings import replace_mmap
from updraft_server.sandbox.worker_sandbox import WorkerSandbox
from updraft_server.zygote.image import Image
from updraft_server.zygote.zygote import Zygote


def load_and_serve(score: OutOfMemoryScore) -> None:
    """Load the image and serve. If the image cannot be loaded or a required layer is off, print the reason and exit."""
    # Function modules may print while they are imported.
    protect_standard_streams()
    settings = packets.ZygoteSettings.decode(os.environ.pop(packets.ZYGOTE_SETTINGS_VARIABLE))
    name_process("updraft-zygote")
    supervisor = socket.socket(fileno=int(os.environ.pop(packets.SUPERVISOR_VARIABLE)))
    # Function modules may start processes, which must not inherit this socket.
    supervisor.set_inheritable(False)
    lifeline = int(os.environ.pop(packets.LIFELINE_VARIABLE))
    heartbeat = Heartbeat.inherited()
    note = LoadingNote.inherited()
    records = WorkerRecords(Path(settings.workers_directory))
    if not settings.is_successor:
        # Continue stopped workers now. Loading the image may take minutes, and the workers' next exchanges must not
        # wait that long.
        records.go_on()
    # Ctrl-C in a terminal signals the whole process group. The supervisor decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # New workers inherit this setting, so they ignore the signal until they can write their stacks.
    signal.signal(packets.STACK_SIGNAL, signal.SIG_IGN)
    retain_freed_batches()
    # Workers inherit the bounding set. Closing it once here is cheaper than in each worker.
    close_bounding_set()
    # Make the sandbox before loading the image: making it forks a child, and function modules may change how forked
    # processes behave.
    sandbox = WorkerSandbox(
        restricted=settings.restricted,
        shared_memory=settings.shared_memory,
        # Registered functions may write wherever the pool's user may. If the pool also runs session functions, all
        # workers are confined, because the zygote cannot tell which kind of function a worker will run.
        writable_paths=settings.worker.writable_paths if settings.worker.allow_session_functions else None,
    )
    _require(settings.required_layers, sandbox)
    if sandbox.refuses_shared_mappings:
        replace_mmap()
    try:
        files = OwnerFiles(settings.worker, shared_memory=sandbox.shared_memory, terminals=sandbox.terminals)
        image = Image(
            settings.worker,
            files,
            settings.function_modules,
            settings.files_directory,
            broken_loads=dict(settings.broken_loads),
            note=note,
        )
    except Exception:
        sys.stderr.write(f"updraft-server: the workers' image cannot be loaded\n{traceback.format_exc()}")
        sys.exit(packets.EXIT_IMAGE_BROKEN)
    note.finish(image.faults)
    note.close()
    _check_threads()
    gc.collect()
    # Keep the workers' garbage collectors from writing to these objects, because a worker shares a page with the zygote
    # only until the worker writes to the page.
    gc.freeze()
    zygote = Zygote(settings, image, supervisor, lifeline, heartbeat, records, score, sandbox)
    # On SIGTERM, continue until the fronts are gone, because a front first finishes the running exchanges of its
    # workers. The supervisor limits the time that this may take.
    signal.signal(signal.SIGTERM, lambda *_: zygote.end_with_fronts())
    zygote.run()


def _require(layers: Sequence[str], sandbox: WorkerSandbox) -> None:
    missing = [layer for layer in sandbox.layers if layer.name in layers and not layer.is_on]
    for layer in missing:
        sys.stderr.write(f"updraft-server: the layer {layer.name!r} is required, but it is off: {layer.lack}\n")
    if missing:
        sys.exit(packets.EXIT_LAYER_MISSING)


def _check_threads() -> None:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        sys.stderr.write(
            f"updraft-server: loading the workers' image has started {threads - 1} threads, which workers will lack:"
            " a function module should start threads only when it is called\n"
        )
