# SPDX-License-Identifier: Apache-2.0
"""A job that called its model with predict_batch_udf, moved to a pool: `make_predict_fn` is what it was."""

from collections.abc import Callable

import numpy as np

from updraft import function
from updraft.functions import Batching, NumPy


def make_predict_fn() -> Callable[[np.ndarray], np.ndarray]:
    """Load the model, as `predict_batch_udf` wants it: gives what predicts the digits of many pictures."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    pictures, digits = load_digits(return_X_y=True)
    return RandomForestClassifier(n_estimators=20, random_state=0).fit(pictures, digits).predict


@function(name="moved_digit", batching=Batching(rows=1024))
class MovedDigit:
    """The digit that a picture shows."""

    def __init__(self) -> None:
        self._predict = make_predict_fn()

    def __call__(self, pixels: NumPy[list[float]]) -> NumPy[int]:
        """Return the digits of many pictures."""
        return self._predict(np.stack(pixels))
