# SPDX-License-Identifier: Apache-2.0
"""How a worker shows where its Python is: on a signal it writes its stacks to a pipe of its own.

Nobody can attach to a worker, whose memory is hidden, and a worker that is stuck in C answers nothing else.
"""

import signal

SIGNAL = signal.SIGRTMAX - 3
"""One that nobody uses; a worker that does not know it yet ignores it."""
MAX_BYTES = 256 * 1024
"""More than faulthandler writes: a hundred threads with a hundred frames each at most."""
