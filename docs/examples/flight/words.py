# SPDX-License-Identifier: Apache-2.0
"""Functions that SQL engines and clients of Arrow Flight call: `updraft-server serve --functions words`."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow


class Word(NamedTuple):
    """A word and how often the text has it."""

    word: str | None
    count: int | None


@function(version="1", owner="editors")
def initials(name: str | None) -> str | None:
    """Return the first letters of a name's words."""
    return "".join(word[0] for word in name.split()).upper() if name is not None else None


@function(version="1", owner="editors")
def word_at(text: str | None, number: int) -> str | None:
    """One word of a text, counted from 0; a number beyond the last word is an error."""
    return text.split()[number] if text is not None else None


@function(version="1", owner="editors")
def reading_minutes(words: Arrow[int | None]) -> Arrow[float | None]:
    """Minutes that it takes to read so many words."""
    return pc.divide(words.cast(pa.float64()), 230.0)


@function.table(version="1", owner="editors")
def word_counts(text: str | None) -> Iterator[Word]:
    """Each word of a text, the first one first."""
    counts: dict[str, int] = {}
    for word in (text or "").split():
        counts[word] = counts.get(word, 0) + 1
    for word, count in counts.items():
        yield Word(word, count)
