# SPDX-License-Identifier: Apache-2.0
"""Profile of functions in a pool, drawn as a flame graph.

Maintained profilers draw only their own samples, and none of these profilers can sample a worker. So this module draws
the pool's samples: a rectangle for each call, above its caller, as wide as the call's share of the samples.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from xml.sax.saxutils import escape

_WIDTH = 1200.0
_ROW = 18
_MARGIN = 10
_HEAD = 34
_CHARACTER = 6.7
_NARROWEST = 0.4
_MOST_ROWS = 200


@dataclass(eq=False, slots=True)
class _Call:
    samples: int = 0
    calls: dict[str, "_Call"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """Sampled stacks; a notebook shows them as a flame graph."""

    seconds: float
    """How long the pool sampled."""
    samples: int
    """Number of times that a process reported stacks. Each report contains one stack for each busy thread."""
    stacks: Mapping[str, int]
    """Number of samples by stack: a function's name and its calls from the outermost, separated by semicolons."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Return the profile in a pool's response."""
        return cls(float(answer["seconds"]), int(answer["samples"]), dict(answer["stacks"]))

    @property
    def folded(self) -> str:
        """Stacks as text, one per line, for speedscope and other programs that draw flame graphs."""
        return "".join(f"{_printable(stack)} {count}\n" for stack, count in sorted(self.stacks.items()))

    @property
    def svg(self) -> str:
        """Flame graph as SVG; hovering over a rectangle shows the call's name and share."""
        root = self._tree()
        drawn = list(_drawn(root))
        rows = max((row for row, *_ in drawn), default=0) + 1
        height = _HEAD + rows * _ROW + _MARGIN
        title = f"{self.samples} samples in {self.seconds:g} seconds, waits included"
        body = "".join(_rectangle(height, root.samples, *place) for place in drawn)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height}" width="100%" '
            f'style="max-width:{_WIDTH:g}px" font-family="monospace" font-size="11">'
            f'<rect width="100%" height="100%" fill="#fffdf7"/>'
            f'<text x="{_MARGIN}" y="21" font-size="13">{title}</text>{body}</svg>\n'
        )

    def _repr_html_(self) -> str:
        return self.svg if self.stacks else "<b>no call ran while the pool sampled</b>"

    def _tree(self) -> _Call:
        root = _Call()
        for stack, count in self.stacks.items():
            call = root
            call.samples += count
            for name in stack.split(";")[:_MOST_ROWS]:
                call = call.calls.setdefault(name, _Call())
                call.samples += count
        return root


def _drawn(root: _Call) -> Iterator[tuple[int, float, float, str, int]]:
    """Yield row, left edge, width, name and samples of each call that is wide enough to see."""
    scale = (_WIDTH - 2 * _MARGIN) / max(root.samples, 1)
    open_calls: list[tuple[int, float, _Call]] = [(0, float(_MARGIN), root)]
    while open_calls:
        row, left, call = open_calls.pop()
        for name, inner in sorted(call.calls.items()):
            width = inner.samples * scale
            if width >= _NARROWEST:
                yield row, left, width, name, inner.samples
                open_calls.append((row + 1, left, inner))
            left += width


def _rectangle(height: int, total: int, row: int, left: float, width: float, name: str, samples: int) -> str:
    text = _printable(name)
    top = height - _MARGIN - (row + 1) * _ROW
    room = int((width - 6) / _CHARACTER)
    label = text if len(text) <= room else f"{text[: room - 2]}.." if room > 4 else ""
    # Derive the colour from the module's name, so that the module has the same colour in all drawings.
    shade = zlib.crc32(text.rpartition("(")[2].encode())
    colour = f"hsl({10 + shade % 40},{60 + shade // 40 % 25}%,{65 + shade // 1000 % 12}%)"
    return (
        f"<g><title>{escape(text)}: {samples} samples, {samples / total:.1%}</title>"
        f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="{_ROW - 1}" fill="{colour}" rx="1"/>'
        + (f'<text x="{left + 3:.2f}" y="{top + 13}" pointer-events="none">{escape(label)}</text>' if label else "")
        + "</g>"
    )


def _printable(text: str) -> str:
    """Replace characters that XML does not allow or that would control a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
