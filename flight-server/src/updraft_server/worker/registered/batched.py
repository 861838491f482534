# SPDX-License-Identifier: Apache-2.0
"""Runs a batched function over an exchange: its rows are called in the function's own process, with those of others."""

import contextlib

from updraft_server.worker.exchange import Exchange
from updraft_server.worker.model.client import ModelClient
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.worker.registered.requests import Requests


def run_batched(function: BatchedFunction, client: ModelClient, exchange: Exchange, requests: Requests) -> None:
    """One reply for each request; raises UpdraftError."""
    function.check(requests.schema)
    with contextlib.closing(client):
        # Now, so that others who fill a batch wait for the rows to come.
        client.connect()
        if exchange.plain:
            # A plain client asks for the schema before it looks for a batch, of which there may be none.
            exchange.announce(function.result_schema)
        for batch in requests.checked():
            sequence = exchange.consumed
            results = client.call(batch, sequence=sequence) if batch.num_rows else function.no_results()
            exchange.reply(results, sequence=sequence)
