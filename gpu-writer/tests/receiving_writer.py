# SPDX-License-Identifier: Apache-2.0
"""A writer with two receivers, on any number of cores."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running_writer import RunningWriter, running_writer

RECEIVERS = 2


@contextmanager
def writer_with_receivers(root: Path, **changes: Any) -> Iterator[RunningWriter]:
    constants = {
        "receivers.LEAST_CORES": 1,
        "receivers.LEAST_RECEIVERS": RECEIVERS,
        "receivers.MOST_RECEIVERS": RECEIVERS,
    }
    with running_writer(root, constants=constants, **changes) as writer:
        yield writer
