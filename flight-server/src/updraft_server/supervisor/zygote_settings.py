# SPDX-License-Identifier: Apache-2.0
"""Settings of a supervisor's zygotes, computed from the settings of the pool."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.ipc.zygote_packets import ZygoteSettings
from updraft_server.sandbox_layers import RESTRICTED
from updraft_server.settings import WorkersSettings

SCRATCH = "scratch"


def zygote_settings(settings: WorkersSettings, directory: Path, own_directories: Iterable[Path]) -> ZygoteSettings:
    """Return the settings of the zygote and its workers, and make the directories that they need.

    Args:
        settings: Settings of the workers' side.
        directory: Directory in which the needed directories are made.
        own_directories: The pool's directories; each worker can use only its own parts of these directories.
    """
    directory = directory.absolute()
    files = directory / "files"
    files.mkdir(mode=0o500, exist_ok=True)
    workers = directory / "workers"
    # Records of a previous pool are useless, because its workers died with that pool.
    shutil.rmtree(workers, ignore_errors=True)
    workers.mkdir(mode=0o700)
    scratch = directory / SCRATCH
    scratch.mkdir(mode=0o700, exist_ok=True)
    return ZygoteSettings(
        function_modules=settings.functions,
        files_directory=str(files),
        workers_directory=str(workers),
        scratch_directory=str(scratch),
        restricted=settings.profile == RESTRICTED,
        shared_memory=settings.shared_memory,
        model_memory_bytes=settings.model_memory_bytes,
        # A pool does not run with fewer restrictions than its profile says.
        required_layers=[*settings.require, *([RESTRICTED] if settings.profile == RESTRICTED else [])],
        worker=WorkerSettings(
            allow_session_functions=settings.session_functions != "off",
            signed_functions_alone=settings.session_functions == "signed",
            restricted_functions=settings.restricted_functions,
            load_timeout_seconds=settings.load_timeout_seconds,
            max_message_bytes=settings.max_message_bytes,
            # The front admits a payload and a schema of up to max_message_bytes each, and what the front adds to a
            # command is limited too.
            max_command_bytes=settings.max_message_bytes * 8,
            # The rest of a message is for the reply's metadata and Arrow's own header.
            max_reply_batch_bytes=settings.max_message_bytes * 15 // 16,
            max_exchanges_per_worker=settings.max_exchanges_per_worker,
            worker_file_bytes=settings.worker_file_bytes,
            worker_descriptors=settings.worker_descriptors,
            hidden_paths=(*sorted(str(path.absolute()) for path in own_directories), *settings.secret_paths),
            readable_paths=(str(files),),
            writable_paths=settings.writable_paths,
        ),
    )
