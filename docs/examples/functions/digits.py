# SPDX-License-Identifier: Apache-2.0
"""Which digit does a picture show? A registered function with a real model, which needs no download.

    updraft-server serve --functions digits          # in this directory, or with it on PYTHONPATH

The pool loads the model once, in a process of its own. All workers send their rows there: rows of many exchanges are
one batch, so that 16 clients with 64 pictures each cost as much as one with 1,024.
"""

import numpy as np

from updraft import function
from updraft.functions import Batching, NumPy


@function(
    name="digit",
    version="1",
    tags=["vision"],
    description="The digit that a picture of 8 x 8 gray pixels shows, each from 0 to 16.",
    batching=Batching(rows=1024, wait_seconds=0.1),
)
class Digit:
    """A forest of 200 trees, trained on the pictures that come with scikit-learn."""

    def __init__(self) -> None:
        """Train it: a model of your own is read from a file here."""
        # Here rather than above: a library that the process loads itself uses all CPUs, and no worker holds it.
        from sklearn.datasets import load_digits
        from sklearn.ensemble import RandomForestClassifier

        pictures, digits = load_digits(return_X_y=True)
        self._forest = RandomForestClassifier(n_estimators=200, random_state=0).fit(pictures, digits)

    def warm_up(self) -> None:
        """Prepare once, before the first rows come."""
        self._forest.predict(np.zeros((1, 64)))

    def __call__(self, pixels: NumPy[list[float]]) -> NumPy[int]:
        """Return the digits of many pictures."""
        return self._forest.predict(np.stack(pixels))
