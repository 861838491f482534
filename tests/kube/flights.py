# SPDX-License-Identifier: Apache-2.0
"""Expected answer of the demo, computed with pandas in this process, because executors have no Python."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

_MOST_FLOWN = 1000


def scored(job: ModuleType, model: Any, directory: Path) -> pd.DataFrame:
    """Return all flights with their expected delay."""
    flights = pd.read_parquet(directory / "flights.parquet")
    features = flights[job.FEATURES].astype("float64").fillna(0.0)
    expected = pd.Series(model.predict(features.to_numpy()), index=flights.index)
    return flights.assign(expected=expected.where(flights["dep_delay"].notna()))


def delays_by_maker(job: ModuleType, scored: pd.DataFrame, directory: Path) -> dict[str, tuple[float, ...]]:
    """Return flights, mean delay, and mean delay minus the expected one, by maker."""
    planes = pd.read_parquet(directory / "planes.parquet").set_index("tailnum")["manufacturer"]
    names = {text: job.maker.func(text) for text in planes.unique()}
    makers = scored["tailnum"].map(planes).map(names).fillna(job.maker.func(None))
    against = scored["arr_delay"] - scored["expected"]
    means = pd.DataFrame({"delay": scored["arr_delay"], "against": against}).groupby(makers).mean()
    flown = makers.value_counts()
    often = flown[flown >= _MOST_FLOWN].index
    return {maker: (int(flown[maker]), *(float(mean) for mean in means.loc[maker])) for maker in often}
