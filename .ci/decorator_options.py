# SPDX-License-Identifier: Apache-2.0
"""Writer of the tables of the decorator's options in docs/guides/registered-functions.md.

With --check it only reports whether the tables are up to date. The tables come from the typed
dictionaries of `updraft.functions.options`, whose docstrings become the meanings.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[1]
_SOURCE = _REPOSITORY / "proto/python/src/updraft/functions/options.py"
_GUIDE = _REPOSITORY / "docs/guides/registered-functions.md"
_TABLES = re.compile(r"(?<=<!-- options: written by `make docs` -->\n).*?(?=<!-- options: end -->)", re.DOTALL)
_DECORATORS = {
    "Options": "`@function`, `@function.table` and `@function.aggregate`:",
    "FunctionOptions": "`@function` only:",
    "TableOptions": "`@function.table` only:",
}
"""Decorators that take the options of a class."""


def tables() -> str:
    """Return a table for each class, between two empty lines."""
    tree = ast.parse(_SOURCE.read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    lines = []
    for name, decorators in _DECORATORS.items():
        rows = [f"| {' | '.join(row)} |" for row in _rows(classes[name])]
        lines += ["", decorators, "", "| option | values | meaning |", "| --- | --- | --- |", *rows]
    return "\n".join([*lines, "\n"])


def _rows(of_class: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    for field, doc in zip(of_class.body, of_class.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        assert isinstance(doc, ast.Expr), f"{field.target.id} has no docstring"
        assert isinstance(doc.value, ast.Constant), f"{field.target.id} has no docstring"
        meaning = " ".join(str(doc.value.value).split())
        yield f"`{field.target.id}`", _values(field.annotation), meaning


def _values(annotation: ast.expr) -> str:
    """Return the values that an option takes, for a cell of the table."""
    choices = [ast.unparse(choice) for choice in _choices(annotation)]
    return " or ".join(f"`{choice.replace(chr(39), chr(34))}`" for choice in choices)


def _choices(annotation: ast.expr) -> Iterator[ast.expr]:
    match annotation:
        case ast.BinOp(left=left, right=right):
            yield from _choices(left)
            yield from _choices(right)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=values)):
            yield from values
        case ast.Constant(value=None):
            # None means that the option is left out.
            pass
        case _:
            yield annotation


def main() -> int:
    """Write the tables, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    text = _GUIDE.read_text()
    written, count = _TABLES.subn(lambda _: tables(), text)
    if count != 1:
        print(f"{_GUIDE.name}: the marks of the tables are missing")
        return 1
    if is_check and written != text:
        print(f"{_GUIDE.name}: the tables of options are out of step: run `make docs`")
        return 1
    if not is_check:
        _GUIDE.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
