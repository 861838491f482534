# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
from updraft_server.ipc.function_list import decode_functions
from updraft_server.ipc.load import LoadingNote
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.sandbox.owner_files import OwnerFiles
from updraft_server.zygote.image import Image
settings = WorkerSettings()
note = LoadingNote.made()
hello = Image(settings, OwnerFiles(settings), (), "/nonexistent", broken_loads={}, note=note).hello()
print([function.name for function in decode_functions(hello.functions)])
"""


def test_a_pool_of_registered_functions_needs_no_pyspark() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_PYSPARK], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['echo', 'builtin_echo', 'builtin_healthy']"
