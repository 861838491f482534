# SPDX-License-Identifier: Apache-2.0
"""Messages of a supervisor to its operator. A supervisor has no log of its own, and rarely writes a message."""

import sys


def say(what: str) -> None:
    """Write one line."""
    sys.stderr.write(f"updraft-server: {what}\n")
