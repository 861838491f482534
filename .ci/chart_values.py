# SPDX-License-Identifier: Apache-2.0
"""Writer of the table of values in the chart's README; with --check it only reports a stale README.

The text of a value is the comment above the value in values.yaml, which starts with `# --`. Values with `# --*` come
first.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

_CHART = Path(__file__).resolve().parents[1] / "deploy/helm/updraft"
_START, _END = "<!-- values.yaml: start -->\n", "<!-- values.yaml: end -->\n"


_COMMON = "* "


def tables(values: str) -> str:
    """Return the values of a values.yaml as two Markdown tables, first the common ones, in the file's order."""
    rows = list(_rows(yaml.compose(values, Loader=yaml.SafeLoader), "", values.splitlines()))
    common = [(name, default, text.removeprefix(_COMMON)) for name, default, text in rows if text.startswith(_COMMON)]
    others = [row for row in rows if not row[2].startswith(_COMMON)]
    return f"### Common values\n\n{_table(common)}\n### Other values\n\n{_table(others)}"


def _table(rows: list[tuple[str, str, str]]) -> str:
    lines = ["| value | default | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | `{default}` | {text} |" for name, default, text in rows]
    return "\n".join(lines) + "\n"


def _rows(node: yaml.Node | None, prefix: str, lines: list[str]) -> Iterator[tuple[str, str, str]]:
    if not isinstance(node, yaml.MappingNode):
        raise TypeError("values.yaml is not a mapping")
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        text = _text_above(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and value.value and not text:
            yield from _rows(value, f"{name}.", lines)
        else:
            yield name, json.dumps(yaml.safe_load(yaml.serialize(value))), text


def _text_above(lines: list[str], key: int) -> str:
    """Return the comment directly above a line, from the line with `# --` on."""
    comment: list[str] = []
    for line in reversed(lines[:key]):
        text = line.strip()
        if not text.startswith("#"):
            return ""
        comment.insert(0, text.removeprefix("#").strip())
        if text.startswith("# --"):
            return " ".join(comment).removeprefix("--").strip()
    return ""


def main() -> int:
    """Write or check the README; return 1 if it is out of step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only say whether the README is in step")
    readme = _CHART / "README.md"
    before = readme.read_text()
    head, _, rest = before.partition(_START)
    tail = rest.partition(_END)[2]
    after = f"{head}{_START}{tables((_CHART / 'values.yaml').read_text())}{_END}{tail}"
    if not parser.parse_args().check:
        readme.write_text(after)
    elif before != after:
        print("the chart's README differs from values.yaml: run `make docs`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
