# SPDX-License-Identifier: Apache-2.0
"""Set-up of `make test-gpu`, which fails without a GPU and says why, and never skips for lack of one."""

import importlib.util

import pytest


def pytest_sessionstart() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.exit("no torch in this environment: install it with CUDA", returncode=1)
    import torch

    if not torch.cuda.is_available():
        pytest.exit("torch finds no GPU here", returncode=1)
