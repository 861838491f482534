# SPDX-License-Identifier: Apache-2.0
import asyncio
from contextlib import ExitStack

import pytest

from updraft.errors import QuotaError
from updraft_writer.open_files import OpenFiles
from updraft_writer.quota import Quota, QuotaLimits

MIB = 1 << 20
PLACES = 64


async def _files() -> OpenFiles:
    return OpenFiles(Quota(QuotaLimits(quota_bytes=64 * MIB)), max_open_files=PLACES)


def test_files_that_open_at_once_see_what_the_stripes_of_the_others_may_keep() -> None:
    files = asyncio.run(_files())
    with ExitStack() as stack:
        places = [stack.enter_context(files.place()) for _ in range(PLACES)]
        granted = [files.grant_stripe(place, 64 * MIB) for place in places]
        assert min(granted) >= 16 * MIB // PLACES
        assert sum(granted) <= 32 * MIB
        with pytest.raises(QuotaError, match="64 files are open"), files.place():
            pass
    assert len(files) == 0
    with files.place() as place:
        assert files.grant_stripe(place, 64 * MIB) == granted[0]
