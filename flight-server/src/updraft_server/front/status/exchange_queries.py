# SPDX-License-Identifier: Apache-2.0
"""Parser of the JSON requests for output and for profiles of functions."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from updraft.errors import ProtocolError
from updraft_server.front.status.output_log import KEPT_LINES

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
    wait_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)] = 0.0
    """How long to wait if no line matches."""


class ProfileQuery(_Query):
    """Request for a profile."""

    function: str = ""
    """Name of the function; empty for all functions."""
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]


def parsed(kind: type[Query], body: bytes) -> Query:
    """Return the parsed request; raise ProtocolError if it is malformed."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise ProtocolError(f"the request is not JSON of the expected form: {where}: {first['msg']}") from None
