# SPDX-License-Identifier: Apache-2.0
"""Helpers: exchanges that share the batches of another exchange of their task."""

import grpc
from fake_pool import FakePool
from flight_messages import all_replies, command_request, echo_command, reply_metadata
from front_calls import Gate
from front_harness import Running

from updraft.v1.exchange_pb2 import ErrorKind


async def test_a_helper_of_a_task_gets_an_idle_worker(running_front: Running) -> None:
    async with running_front(FakePool(workers=2, script=Gate().script)) as front:
        first = front.exchange()
        await first.write(command_request(echo_command()))
        await first.read()
        helper = front.exchange()
        await helper.write(command_request(echo_command(is_helper=True)))
        assert reply_metadata(await helper.read()).HasField("admitted")
        for call in (first, helper):
            call.cancel()


async def test_a_helper_gets_no_worker_beyond_the_pools_although_its_task_has_one(running_front: Running) -> None:
    pool = FakePool(workers=1, script=Gate().script)
    async with running_front(pool) as front:
        first = front.exchange()
        await first.write(command_request(echo_command()))
        await first.read()
        helper = front.exchange()
        await helper.write(command_request(echo_command(is_helper=True)))
        replies, error = await all_replies(helper)
        assert error is not None
        assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_POOL_BUSY
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(pool.leases) == 1
        first.cancel()
