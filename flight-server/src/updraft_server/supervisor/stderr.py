# SPDX-License-Identifier: Apache-2.0
"""What a supervisor tells its operator: it has no log of its own, and hardly ever anything to say."""

import sys


def say(what: str) -> None:
    """One line."""
    sys.stderr.write(f"updraft-server: {what}\n")
