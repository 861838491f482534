# SPDX-License-Identifier: Apache-2.0
"""A profile is drawn to scale, whatever the names of the profiled functions."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from updraft.client.profile import Profile

_SVG = "{http://www.w3.org/2000/svg}"


def drawn(stacks: dict[str, int]) -> dict[str, tuple[float, float, float]]:
    """Return left edge, top and width of each call, by its title."""
    root = ElementTree.fromstring(Profile(10.0, 4, stacks).svg)
    found = {}
    for group in root.iter(f"{_SVG}g"):
        title, rectangle = group.find(f"{_SVG}title"), group.find(f"{_SVG}rect")
        assert title is not None
        assert rectangle is not None
        place = tuple(float(rectangle.attrib[name]) for name in ("x", "y", "width"))
        found[str(title.text)] = (place[0], place[1], place[2])
    return found


def test_a_call_lies_on_its_caller_and_is_as_wide_as_its_share() -> None:
    found = drawn({"greeting;greet (shop.py);render (page.py)": 3, "greeting;greet (shop.py)": 1})
    root = found["greeting: 4 samples, 100.0%"]
    caller = found["greet (shop.py): 4 samples, 100.0%"]
    inner = found["render (page.py): 3 samples, 75.0%"]
    assert root[1] > caller[1] > inner[1]
    assert root[2] == caller[2]
    assert inner[2] == pytest.approx(0.75 * root[2], abs=0.01)
    assert inner[0] == caller[0]


def test_names_stay_text() -> None:
    (title,) = drawn({"<script>alert(1)</script>&\x1b[2J\ud800": 4})
    assert title == "<script>alert(1)</script>&?[2J?: 4 samples, 100.0%"


def test_narrow_calls_are_left_out_of_the_drawing_alone() -> None:
    profile = Profile(10.0, 1, {"f;wide": 100_000, "f;narrow": 1})
    assert "narrow" not in profile.svg
    assert profile.folded == "f;narrow 1\nf;wide 100000\n"


def test_a_profile_without_samples_says_so() -> None:
    profile = Profile.of({"seconds": 1, "samples": 0, "hertz": 50, "stacks": {}})
    assert "no call ran" in profile._repr_html_()
    assert ElementTree.fromstring(profile.svg).tag == f"{_SVG}svg"
