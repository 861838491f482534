# SPDX-License-Identifier: Apache-2.0
"""Actions with which callers see what functions print and where their code is.

Each view has two actions: one for the caller's own exchanges, which every caller may call, and one for all exchanges.
The second needs the scope admin, and for profiles also works where the operator allows remote stacks.
"""

import json
from collections.abc import Iterable
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from updraft.errors import ProtocolError
from updraft.service.flight_service import Action
from updraft.service.identity import Identity
from updraft_server.front.status.output_log import EVERYBODY, KEPT_LINES, OutputLog
from updraft_server.front.status.profiler import Profiler
from updraft_server.front.status.readers import require_readers
from updraft_server.pool.worker_events import Reader

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

Query = TypeVar("Query", bound=BaseModel)


class _Query(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    log_key: str = ""
    """Secret that the caller sent with its exchanges."""


class OutputQuery(_Query):
    """Request for lines of output."""

    fields: dict[str, str] = {}
    """Values that the fields of a line must have."""
    lines: Annotated[int, Field(gt=0, le=KEPT_LINES)] = KEPT_LINES
    """Maximum number of lines, the newest."""
    after_microseconds: int = 0
    """Time of the last line that the caller has."""
    wait_seconds: Annotated[float, Field(ge=0, strict=False)] = 0.0
    """How long to wait if no line matches."""


class ProfileQuery(_Query):
    """Request for a profile."""

    function: str = ""
    """Name of the function; empty for all functions."""
    seconds: Annotated[float, Field(gt=0, strict=False)]


def exchange_views(output: OutputLog, profiler: Profiler, *, no_stacks: str) -> list[Action]:
    """Return the actions; `no_stacks` is the refusal of callers that may not see stacks of all tenants, if any."""

    async def lines(query: OutputQuery, readers: Iterable[Reader | None]) -> bytes:
        found = await output.lines(
            readers,
            fields=query.fields,
            most=query.lines,
            after_microseconds=query.after_microseconds,
            wait_seconds=query.wait_seconds,
        )
        return json.dumps({"lines": [line.to_plain() for line in found]}).encode()

    async def own_output(body: bytes, identity: Identity) -> bytes:
        query = _parsed(OutputQuery, body)
        return await lines(query, require_readers(identity, query.log_key))

    async def all_output(body: bytes, _identity: Identity) -> bytes:
        return await lines(_parsed(OutputQuery, body), [EVERYBODY])

    async def own_profile(body: bytes, identity: Identity) -> bytes:
        query = _parsed(ProfileQuery, body)
        readers = require_readers(identity, query.log_key)
        return json.dumps((await profiler.profile(query.function, query.seconds, readers)).to_plain()).encode()

    async def all_profiles(body: bytes, _identity: Identity) -> bytes:
        query = _parsed(ProfileQuery, body)
        return json.dumps((await profiler.profile(query.function, query.seconds, None)).to_plain()).encode()

    return [
        Action(OUTPUT_ACTION, _OUTPUT_DOC, own_output),
        Action(ALL_OUTPUT_ACTION, _ALL_OUTPUT_DOC, all_output, _NO_OUTPUT, is_recorded=True),
        Action(PROFILE_ACTION, _PROFILE_DOC, own_profile),
        Action(ALL_PROFILES_ACTION, _ALL_PROFILES_DOC, all_profiles, no_stacks, is_recorded=True),
    ]


def _parsed(kind: type[Query], body: bytes) -> Query:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise ProtocolError(f"the request is not JSON of the expected form: {where}: {first['msg']}") from None
