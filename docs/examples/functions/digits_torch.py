# SPDX-License-Identifier: Apache-2.0
"""Which digit does a picture show? A small network of torch, which trains itself: on a GPU if there is one.

    updraft-server serve --functions digits_torch

With several GPUs, `replicas` is their number: each process sees one of them.
"""

import os
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow, Batching


@function(
    name="digit_torch",
    version="1",
    tags=["vision"],
    description="The digit that a picture of 8 x 8 gray pixels shows, each from 0 to 16.",
    batching=Batching(rows=4096, wait_seconds=0.02, device="cuda"),
)
class DigitTorch:
    """A network with two hidden layers, trained on the pictures that come with scikit-learn."""

    def __init__(self) -> None:
        """Train it: a network of your own is read from a file here."""
        # Here rather than above: a process that is forked after CUDA was initialised cannot use it.
        import torch
        from sklearn.datasets import load_digits

        self._torch = torch
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(0)
        self._network = torch.nn.Sequential(
            torch.nn.Linear(64, 512),
            torch.nn.ReLU(),
            torch.nn.Linear(512, 512),
            torch.nn.ReLU(),
            torch.nn.Linear(512, 10),
        ).to(self._device)
        pictures, digits = load_digits(return_X_y=True)
        inputs = self._on_device(pictures)
        wanted = torch.tensor(digits, device=self._device)
        optimizer = torch.optim.Adam(self._network.parameters(), lr=1e-3)
        for _ in range(100):
            loss = torch.nn.functional.cross_entropy(self._network(inputs), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def warm_up(self) -> None:
        """Load the kernels, once, before the first rows come."""
        self(pa.array([[0.0] * 64]))

    def __call__(self, pixels: Arrow[list[float]]) -> Arrow[int]:
        """Return the digits of many pictures, whose pixels lie one after the other in Arrow's memory."""
        if not pc.all(pc.equal(pc.list_value_length(pixels), 64)).as_py():
            raise ValueError("a picture has 64 pixels")
        pictures = pixels.flatten().to_numpy().reshape(len(pixels), 64)
        try:
            with self._torch.inference_mode():
                return pa.array(self._network(self._on_device(pictures)).argmax(dim=1).cpu().numpy())
        except self._torch.AcceleratorError:
            # After an error of the GPU this process cannot use it any more. The pool starts another one.
            os._exit(1)

    def _on_device(self, pictures: Any) -> Any:
        return self._torch.tensor(pictures, dtype=self._torch.float32, device=self._device) / 16
