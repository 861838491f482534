# SPDX-License-Identifier: Apache-2.0
"""The example's torch network without a GPU gives the same answers in a pool as outside."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from docs.examples.functions.digits_torch import DigitTorch
from pyarrow import flight
from served_pool import Server
from sklearn.datasets import load_digits


def test_the_network_answers_on_the_cpu_as_outside_of_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Path(__file__).resolve().parents[4] / "docs/examples/functions"
    monkeypatch.setenv("PYTHONPATH", str(examples))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pictures, digits = load_digits(return_X_y=True)
    rows = pa.record_batch({"pixels": list(pictures)})
    server = Server(tmp_path, "--functions=digits_torch", "--workers=2", "--session-functions=off")
    try:
        with server.client() as client:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("digit_torch"))
            writer.begin(rows.schema)
            writer.write_batch(rows)
            writer.done_writing()
            answers = reader.read_all().column(0).to_pylist()
    finally:
        server.stop()
    here = cast(Any, DigitTorch).target()
    assert answers == here(rows.column(0)).to_pylist()
    assert np.mean(np.array(answers) == digits) > 0.97
    with pytest.raises(ValueError, match="64 pixels"):
        here(pa.array([[0.0] * 63, [0.0] * 65]))
