# SPDX-License-Identifier: Apache-2.0
"""Parser of TOML files that operators write; slow to import, so only services with such a file import it."""

import tomllib
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[\x21-\x7e]+$")]
"""Name of an entry, as errors and logs print it: printable ASCII without spaces."""


class Table(BaseModel):
    """Base of a table in such a file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Whole = TypeVar("Whole", bound=Table)


def parse_toml(file: type[Whole], content: bytes) -> Whole:
    """Parse a file; raise a ValueError that names the wrong key."""
    try:
        return file.model_validate(tomllib.loads(content.decode()))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from None
