# SPDX-License-Identifier: Apache-2.0
"""Writer of updraft/spark/options.py: the options of `local_pool` and `local_writer`, for editors and type checkers.

With --check it only reports whether the file is up to date. The options come from the services' settings,
which `updraft.spark` must not import.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from updraft.service.settings import Settings
from updraft_server.settings import ServeSettings as ServerSettings
from updraft_writer.settings import ServeSettings as WriterSettings

_FILE = Path(__file__).resolve().parents[1] / "proto/python/src/updraft/spark/options.py"
_WIDTH = 120
_INDENT = "    "
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_HEAD = '''\
# SPDX-License-Identifier: Apache-2.0
"""Options of `local_pool` and `local_writer`; written by `make docs` from the settings of the services."""

import os
from collections.abc import Sequence
from typing import Literal, TypedDict'''
_TYPES = {bool: "bool", int: "int", float: "float", str: "str", Path: "str | os.PathLike[str]"}


def options() -> str:
    """Return the text of options.py."""
    pool = _declarations(ServerSettings, own={"workers"})
    writer = _declarations(WriterSettings, own={"root"})
    shared = {option: lines for option, lines in pool.items() if writer.get(option) == lines}
    classes = [
        _class("ServiceOptions(TypedDict", "Options of both services; each is optional.", shared),
        _class("PoolOptions(ServiceOptions", "Options of `updraft-server serve`.", pool, without=shared),
        _class("WriterOptions(ServiceOptions", "Options of `updraft-writer serve`.", writer, without=shared),
    ]
    return "\n\n\n".join([_HEAD, *classes]) + "\n"


def _class(head: str, doc: str, declarations: dict[str, list[str]], without: Container[str] = ()) -> str:
    lines = [f"class {head}, total=False):", f'{_INDENT}"""{doc}"""']
    for option, declaration in declarations.items():
        if option not in without:
            lines += ["", *declaration]
    return "\n".join(lines)


def _declarations(settings: type[Settings], own: set[str]) -> dict[str, list[str]]:
    """Return the lines that declare each option, except for the functions' `own` parameters."""
    fields = settings.model_fields.items()
    return {option: list(_declaration(option, field)) for option, field in fields if option not in own}


def _declaration(option: str, field: Any) -> Iterator[str]:
    extra = field.json_schema_extra
    unit = f" [{extra['unit']}]" if extra["unit"] else ""
    doc = _OPTION.sub(lambda found: found[1].replace("-", "_"), f"{extra['doc']}{unit}")
    yield f"{_INDENT}{option}: {_type(field.annotation)}"
    lines = textwrap.wrap(doc, _WIDTH - len(_INDENT) - 6, break_long_words=False, break_on_hyphens=False)
    if len(lines) == 1:
        yield f'{_INDENT}"""{lines[0]}"""'
        return
    summary, _, rest = doc.partition(". ")
    yield from (
        f"{_INDENT}{line}".rstrip()
        for line in (
            *textwrap.wrap(f'"""{summary}.', _WIDTH - len(_INDENT), break_on_hyphens=False),
            *(["", *textwrap.wrap(rest, _WIDTH - len(_INDENT), break_on_hyphens=False)] if rest else []),
            '"""',
        )
    )


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return f"Literal[{', '.join(repr(value) for value in get_args(annotation))}]".replace("'", '"')
    if get_origin(annotation) is tuple:
        return "str | Sequence[str]"
    kinds = get_args(annotation) or (annotation,)
    return " | ".join(_TYPES[kind] for kind in kinds if kind is not type(None))


def main() -> int:
    """Write or check the file; return 1 if it is out of step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="say whether the file is in step, and write nothing")
    if not parser.parse_args().check:
        _FILE.write_text(options())
        return 0
    if _FILE.read_text() == options():
        return 0
    sys.stderr.write(f"{_FILE} is out of step with the settings: run make docs\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
