# SPDX-License-Identifier: Apache-2.0
"""Flight actions that return the output of functions, and profiles of their code.

Each view has two actions: one for the caller's own exchanges, which every caller may call, and one for all exchanges.
The second action needs the scope admin. The second action for profiles needs no scope if the operator allows remote
stacks.
"""

import asyncio
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from updraft.service.flight_service import Action
from updraft.service.identity import Identity
from updraft_server.front.status.output_log import EVERYBODY, OutputLog
from updraft_server.front.status.profiler import Profiler
from updraft_server.front.status.readers import require_readers
from updraft_server.pool.worker_events import Reader

if TYPE_CHECKING:
    from updraft_server.front.status.exchange_queries import OutputQuery, ProfileQuery

OUTPUT_ACTION = "updraft.output"
ALL_OUTPUT_ACTION = "updraft.all_output"
PROFILE_ACTION = "updraft.profile"
ALL_PROFILES_ACTION = "updraft.all_profiles"

_OUTPUT_DOC = "Last lines that the functions of the caller's own exchanges printed: JSON, in and out."
_ALL_OUTPUT_DOC = "Last lines that the functions of all callers printed: JSON, in and out."
_PROFILE_DOC = "Profile of the caller's own exchanges, sampled while this call lasts: JSON, in and out."
_ALL_PROFILES_DOC = "Profile of all callers' exchanges, sampled while this call lasts: JSON, in and out."
_NO_OUTPUT = (
    "clients may not read what the functions of other callers print: leave out --all to read your own, or call as an "
    "identity with the scope admin"
)


def exchange_views(output: OutputLog, profiler: Profiler, *, no_stacks: str) -> list[Action]:
    """Return the actions; `no_stacks` is the error for callers without the scope admin, empty if all may see stacks."""

    async def lines(query: "OutputQuery", readers: Iterable[Reader | None]) -> bytes:
        found = await output.lines(
            readers,
            fields=query.fields,
            most=query.lines,
            after_microseconds=query.after_microseconds,
            wait_seconds=query.wait_seconds,
        )
        return json.dumps({"lines": [line.to_plain() for line in found]}).encode()

    async def own_output(body: bytes, identity: Identity) -> bytes:
        query = await asyncio.to_thread(_output_query, body)
        return await lines(query, require_readers(identity, query.log_key))

    async def all_output(body: bytes, _identity: Identity) -> bytes:
        return await lines(await asyncio.to_thread(_output_query, body), [EVERYBODY])

    async def own_profile(body: bytes, identity: Identity) -> bytes:
        query = await asyncio.to_thread(_profile_query, body)
        readers = require_readers(identity, query.log_key)
        return json.dumps((await profiler.profile(query.function, query.seconds, readers)).to_plain()).encode()

    async def all_profiles(body: bytes, _identity: Identity) -> bytes:
        query = await asyncio.to_thread(_profile_query, body)
        return json.dumps((await profiler.profile(query.function, query.seconds, None)).to_plain()).encode()

    return [
        Action(OUTPUT_ACTION, _OUTPUT_DOC, own_output),
        Action(ALL_OUTPUT_ACTION, _ALL_OUTPUT_DOC, all_output, _NO_OUTPUT, is_recorded=True),
        Action(PROFILE_ACTION, _PROFILE_DOC, own_profile),
        Action(ALL_PROFILES_ACTION, _ALL_PROFILES_DOC, all_profiles, no_stacks, is_recorded=True),
    ]


# These functions load pydantic, which takes a tenth of a second and is rarely needed. Call them in a thread.
def _output_query(body: bytes) -> "OutputQuery":
    from updraft_server.front.status.exchange_queries import OutputQuery, parsed

    return parsed(OutputQuery, body)


def _profile_query(body: bytes) -> "ProfileQuery":
    from updraft_server.front.status.exchange_queries import ProfileQuery, parsed

    return parsed(ProfileQuery, body)
