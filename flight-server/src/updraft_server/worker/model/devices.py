# SPDX-License-Identifier: Apache-2.0
"""Which device a replica of a model sees."""

import os

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def choose_device(device: str, number: int) -> None:
    """Let this process, before it loads anything, see the one GPU that is its own: the next one for the next replica.

    Of the GPUs that the pool may use, if its environment says so; those of the machine otherwise, by their numbers.
    """
    if device != "cuda":
        return
    visible = [name.strip() for name in os.environ.get(_VISIBLE, "").split(",") if name.strip()]
    os.environ[_VISIBLE] = visible[number % len(visible)] if visible else str(number)
