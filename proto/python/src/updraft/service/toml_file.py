# SPDX-License-Identifier: Apache-2.0
"""Files that operators write in TOML. Only a service that has one imports this: it takes a while."""

import tomllib
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[\x21-\x7e]+$")]
"""What people call something, in errors and logs."""


class Table(BaseModel):
    """A table of such a file: what it does not know is an error."""

    model_config = ConfigDict(extra="forbid")


Whole = TypeVar("Whole", bound=Table)


def parse_toml(file: type[Whole], content: bytes) -> Whole:
    """What a file says; raises ValueError, which names the place."""
    try:
        return file.model_validate(tomllib.loads(content.decode()))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from None
