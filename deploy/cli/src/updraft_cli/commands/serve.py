# SPDX-License-Identifier: Apache-2.0
"""`updraft serve`: serve a module of functions on this machine while it is being written."""

import contextlib
import signal
import time
from types import FrameType
from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic_settings import CliPositionalArg

from updraft.client.credentials import Credentials
from updraft.client.endpoint import Endpoint
from updraft.service.settings import setting
from updraft.spark.local_service import LocalServiceError
from updraft_cli.described_function import listed
from updraft_cli.output import print_line
from updraft_cli.served_module import ModuleFiles, ServedModule, require_free
from updraft_cli.service import Service

_LOOK_SECONDS = 0.3
_CALL_TIMEOUT_SECONDS = 10.0


class Interruption:
    """Handler that raises KeyboardInterrupt in the main thread, and again in the next wait, in case the first got lost.

    Python drops an exception that is raised while a finalizer runs. A shell makes the background commands of a script
    ignore SIGINT; this handler handles SIGINT even then, because somebody sent it to this command.
    """

    def __init__(self) -> None:
        """Handle SIGINT and SIGTERM from now on."""
        self._has_come = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._come)

    def _come(self, _number: int, _frame: FrameType | None) -> None:
        self._has_come = True
        raise KeyboardInterrupt

    def sleep(self, seconds: float) -> None:
        """Wait; raises KeyboardInterrupt once a signal has come."""
        if self._has_come:
            raise KeyboardInterrupt
        time.sleep(seconds)


class Serve(BaseModel):
    """Serve the functions of a module on this machine, and load it again whenever one of its files is saved.

    The pool is for writing and trying functions: it listens only on this machine, needs no token, and runs nothing but
    the module's functions. Running calls finish with the code that they began with; calls that begin after a reload run
    the new code. Use `updraft-server serve` for a service that others use. Ctrl-C ends the command.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    examples: ClassVar[str] = """examples:
  updraft serve my_functions
  updraft serve my_functions --port 8915 --workers 4
"""

    module: CliPositionalArg[str] = setting("The module, found as `python -m` finds it.")
    port: int = setting("Port on 127.0.0.1; 0 chooses a free one.", default=8815, ge=0, le=65535)
    workers: int = setting("Worker processes, each for one exchange at a time.", default=2, ge=1)

    def cli_cmd(self) -> None:
        """Serve until interrupted; raises ServeError and LocalServiceError if it cannot begin."""
        interruption = Interruption()
        with contextlib.suppress(KeyboardInterrupt):
            files = ModuleFiles(self.module)
            require_free(self.port)
            served = self._served(f"127.0.0.1:{self.port}")
            while True:
                with served:
                    self._tell(served)
                    self._follow(files, interruption, served)
                # The new pool keeps the old pool's address, because clients know that address by now.
                served = self._served_again(files, interruption, served.address)

    def _follow(self, files: ModuleFiles, interruption: Interruption, served: ServedModule) -> None:
        """Load the module again whenever it changes; return when the pool has ended."""
        while not served.has_ended:
            if changes := files.changes():
                print_line(f"{', '.join(changes)} changed")
                files.look()
                served.load_again()
            elif served.has_loaded_again():
                self._tell(served)
            else:
                # Poll, because editors do not announce that a file was saved.
                interruption.sleep(_LOOK_SECONDS)
        print_line("the pool has ended: see its log above")

    def _served(self, listen: str) -> ServedModule:
        return ServedModule(self.module, listen=listen, workers=self.workers)

    def _served_again(self, files: ModuleFiles, interruption: Interruption, listen: str) -> ServedModule:
        """Return a new pool, once the module has changed."""
        while True:
            while not files.changes():
                interruption.sleep(_LOOK_SECONDS)
            files.look()
            try:
                return self._served(listen)
            except LocalServiceError as error:
                # The next save may fix code that ended the pool's process.
                print_line(str(error))

    def _tell(self, served: ServedModule) -> None:
        endpoint = f"grpc://{served.address}"
        with Service(Endpoint.parse(endpoint), Credentials(), _CALL_TIMEOUT_SECONDS) as service:
            functions = service.functions()
        print_line(f"{self.module} at {endpoint}")
        for line in listed(functions):
            print_line(f"  {line}")
        print_line(f"Save a file of {self.module} to reload it; press Ctrl-C to stop.")
