# SPDX-License-Identifier: Apache-2.0
"""Function that trains with torch on the CPU: it works in a worker as on stock Spark, including its own loaders."""

import functools
import sys

import pytest
from pool_driver import Zygotes, running_pool
from pyspark import cloudpickle
from session_commands import said

# Workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def a_network_learns(sharing: str, start: str) -> tuple[bool, int]:
    """Return whether the loss fell, and how many rows two loader processes passed through shared memory."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(1)
    torch.multiprocessing.set_sharing_strategy(sharing)
    x = torch.linspace(-1, 1, 256).reshape(-1, 1)
    loader = DataLoader(TensorDataset(x, 3 * x), batch_size=32, num_workers=2, multiprocessing_context=start)
    network = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(network.parameters(), 0.05)
    losses, rows = [], 0
    for _ in range(4):
        for inputs, wanted in loader:
            loss = ((network(inputs) - wanted) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            rows += len(inputs)
    return losses[-1] < losses[0] / 2, rows


@pytest.mark.parametrize("sharing", ["file_descriptor", "file_system"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
async def test_torch_trains_with_loaders_of_its_own(zygotes: Zygotes, sharing: str, start: str) -> None:
    async with running_pool(zygotes) as pool:
        assert await said(pool, functools.partial(a_network_learns, sharing, start)) == "(True, 1024)"
