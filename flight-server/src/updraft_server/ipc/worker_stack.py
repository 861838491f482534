# SPDX-License-Identifier: Apache-2.0
"""Stacks of a worker: on a signal it writes them to a pipe of its own.

A debugger cannot attach to a worker, whose memory is hidden, and a worker that is stuck in C answers nothing else.
"""

import signal

SIGNAL = signal.SIGRTMAX - 3
"""Signal without another use; a worker that does not know it yet ignores it."""
MAX_BYTES = 256 * 1024
"""More than faulthandler writes: a hundred threads with a hundred frames each at most."""
