# SPDX-License-Identifier: Apache-2.0
"""The page refreshes itself, works without JavaScript, follows the reader's color scheme and loads nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from selenium.webdriver.common.by import By

from tests.browser.browser import chromium
from tests.support.flight import echo_command, exchange, whole_request
from tests.support.pool import LocalPool
from tests.support.waiting import until

_WITHIN_SECONDS = 60
_LEAST_CONTRAST = 4.5


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(workers=2, session_functions="off") as running:
        yield running


@pytest.fixture
def url(pool: LocalPool) -> str:
    return f"http://{pool.metrics_address}/status"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


def _fail_an_exchange(pool: LocalPool, name: str) -> None:
    batch = pa.RecordBatch.from_pydict({"_0": [1]})
    exchange(pool.tcp_address, whole_request(echo_command(name=name), batch.schema, [batch]))


def _text(browser: Any) -> str:
    # Read in one step, because the page may replace an element between finding and reading it.
    return str(browser.execute_script("return document.querySelector('main').innerText"))


def test_what_happens_shows_without_a_reload(browser: Any, pool: LocalPool, url: str) -> None:
    browser.get(url)
    browser.execute_script("window.sameDocument = true")
    assert "surprising_name" not in _text(browser)
    _fail_an_exchange(pool, "surprising_name")
    until("the error shows", lambda: "surprising_name" in _text(browser), timeout_seconds=_WITHIN_SECONDS)
    assert browser.execute_script("return window.sameDocument")


def test_a_reader_can_stop_it(browser: Any, pool: LocalPool, url: str) -> None:
    browser.get(url)
    browser.find_element(By.ID, "refresh").click()
    seen = browser.find_element(By.CSS_SELECTOR, ".facts time").text
    _fail_an_exchange(pool, "unseen_name")
    with chromium() as other:
        other.get(url)
        until("another reader sees it", lambda: "unseen_name" in _text(other), timeout_seconds=_WITHIN_SECONDS)
    assert browser.find_element(By.CSS_SELECTOR, ".facts time").text == seen


def test_the_numbers_are_there_without_javascript(pool: LocalPool, url: str) -> None:
    with chromium(javascript=False) as browser:
        browser.get(url)
        shown = browser.find_element(By.TAG_NAME, "main").text
        assert "2 configured" in shown
        assert "echo" in shown


def test_nothing_comes_from_elsewhere_and_nothing_breaks_the_pages_policy(browser: Any, url: str) -> None:
    browser.get_log("performance")
    browser.get(url)
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert asked
    assert all(request.startswith((url, "data:")) for request in asked)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_in_the_readers_colours(browser: Any, url: str, scheme: str) -> None:
    features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
    browser.get(url)
    found = browser.execute_script(_TEXTS_AND_COLOURS)
    assert len(found) > 30
    faint = [text for text, front, back in found if _contrast(front, back) < _LEAST_CONTRAST]
    assert faint == []
    (page,) = {back for text, _, back in found if text == "Workers"}
    assert (_luminance(page) < 0.1) == (scheme == "dark")


@pytest.mark.parametrize("width", [360, 1240])
def test_only_tables_scroll_sideways(browser: Any, url: str, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(url)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_a_pool_that_has_gone_is_said(browser: Any) -> None:
    with LocalPool(workers=1, session_functions="off") as pool:
        browser.get(f"http://{pool.metrics_address}/status")
    until(
        "the page says that nobody answers",
        lambda: "does not answer" in browser.find_element(By.ID, "trouble").text,
        timeout_seconds=_WITHIN_SECONDS,
    )


# Each text with its color and its background color.
_TEXTS_AND_COLOURS = """
const solid = colour => !/, 0\\)$/.test(colour);
const behind = element => {
  while (element && !solid(getComputedStyle(element).backgroundColor)) element = element.parentElement;
  return getComputedStyle(element || document.body).backgroundColor;
};
return [...document.querySelectorAll("main *, footer *")]
  .filter(element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
  .map(element => [element.textContent.trim(), getComputedStyle(element).color, behind(element)]);
"""


def _luminance(colour: str) -> float:
    """Return the relative luminance, as the Web Content Accessibility Guidelines define it."""
    channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
