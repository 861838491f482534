# SPDX-License-Identifier: Apache-2.0
"""Check that a service can listen at its ports on loopback: `free_ports.py VARIABLE=PORT OFFSET...`.

`make pool` and `make writer` run this check before they print confs: if a port is taken, the confs would lead to
another service.
"""

from __future__ import annotations

import errno
import socket
import sys

_LAST_PORT = 2**16 - 1


def problem(variable: str, value: str, offsets: list[int]) -> str | None:
    """Return the problem with the port `value` of the make variable or a port at `offsets` from it, or None."""
    if not value.isascii() or not value.isdigit() or not 0 < int(value) <= _LAST_PORT - max(offsets):
        return f"{variable}={value} is no port: a number from 1 to {_LAST_PORT - max(offsets)} is needed"
    for offset in offsets:
        port = int(value) + offset
        if reason := _taken(port):
            named = f"port {port}" if not offset else f"port {port} ({variable} + {offset})"
            return f"{named} of 127.0.0.1 {reason}: choose another with {variable}={_suggestion(int(value), offsets)}"
    return None


def _taken(port: int) -> str | None:
    with socket.socket() as probe:
        # The services set this option too, so that a connection that has just ended does not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
    return None


def _suggestion(port: int, offsets: list[int]) -> str:
    candidates = range(port + 1, _LAST_PORT - max(offsets) + 1)
    free = (candidate for candidate in candidates if not any(_taken(candidate + offset) for offset in offsets))
    return str(next(free, "..."))


def main() -> int:
    """Print one line and return 1 if a port is taken."""
    variable, _, value = sys.argv[1].partition("=")
    found = problem(variable, value, [int(offset) for offset in sys.argv[2:]])
    if found:
        print(f"error: {found}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
