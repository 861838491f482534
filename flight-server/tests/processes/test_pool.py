# SPDX-License-Identifier: Apache-2.0
from pool_driver import Zygotes, batches_of, exchange, running_pool
from updraft_server.frames import FrameKind


async def test_echo_gives_back_every_batch_under_its_number(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        sent = batches_of([3, 1, 1000])
        reply = await exchange(pool, sent)
    assert reply.batches == list(enumerate(sent, 1))
    assert reply.schema == sent[0].schema
    assert (reply.finish.batches, reply.finish.rows) == (3, 1004)
    assert reply.ending is FrameKind.DONE
