# SPDX-License-Identifier: Apache-2.0
"""Runner of a batched function: the exchange's rows join those of others in the function's own process."""

import contextlib

from updraft_server.worker.exchange import Exchange
from updraft_server.worker.model.client import ModelClient
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.worker.registered.requests import Requests


def run_batched(function: BatchedFunction, client: ModelClient, exchange: Exchange, requests: Requests) -> None:
    """Send one reply for each request; raises UpdraftError."""
    function.check(requests.schema)
    with contextlib.closing(client):
        # Connect now, so that others who fill a batch wait for these rows.
        client.connect()
        if exchange.plain:
            # A plain client asks for the schema before it looks for a batch, and there may be no batch.
            exchange.announce(function.result_schema)
        for batch in requests.checked():
            sequence = exchange.consumed
            results = client.call(batch, sequence=sequence) if batch.num_rows else function.no_results()
            exchange.reply(results, sequence=sequence)
