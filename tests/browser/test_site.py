# SPDX-License-Identifier: Apache-2.0
"""Documentation site that `make docs-site` built: search, versions, colors, widths, no third-party content."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from selenium.webdriver.common.by import By

from tests.browser.browser import chromium
from tests.support.paths import BUILD, VERSION
from tests.support.waiting import until

_SITE = BUILD / "docs/site"
_PAGES = [
    "index.html",
    "which-part.html",
    "guides/registered-functions.html",
    "reference/server.html",
    "reference/connector.html",
    "examples/notebooks/first-udf.html",
]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the versions as a code host's pages do, and yield the address."""
    handler = functools.partial(_Quiet, directory=str(_SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", _PAGES)
def test_only_tables_and_code_scroll_sideways(browser: Any, address: str, page: str, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(f"{address}/{VERSION}/{page}")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(_CUT_OFF) == []
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_front_page_leads_to_the_version_and_every_page_knows_it(browser: Any, address: str) -> None:
    browser.get(address)
    until("the version is open", lambda: f"/{VERSION}/" in browser.current_url)
    for page in _PAGES:
        browser.get(f"{address}/{VERSION}/{page}")
        button = browser.find_element(By.CSS_SELECTOR, ".bd-header .version-switcher__button")
        until("the switcher has the versions", lambda button=button: VERSION in button.text)  # type: ignore[misc]


def test_a_search_finds_pages(browser: Any, address: str) -> None:
    browser.get(f"{address}/{VERSION}/search.html?q=quota")
    found = "#search-results li a"
    until("pages are found", lambda: len(browser.find_elements(By.CSS_SELECTOR, found)) > 3)
    assert "Glossary" in " ".join(link.text for link in browser.find_elements(By.CSS_SELECTOR, found))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_follow_the_readers_colours(browser: Any, address: str, scheme: str) -> None:
    features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
    browser.get(f"{address}/{VERSION}/index.html")
    assert browser.execute_script("return document.documentElement.dataset.theme") == scheme


def test_nothing_comes_from_elsewhere(browser: Any, address: str) -> None:
    browser.get_log("performance")
    for page in _PAGES:
        browser.get(f"{address}/{VERSION}/{page}")
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert len(asked) > len(_PAGES)
    assert [url for url in asked if not url.startswith((address, "data:"))] == []


# Elements that the window or the article cuts off, outside boxes that scroll.
_CUT_OFF = """
const article = document.querySelector(".bd-article");
const edge = Math.min(article.parentElement.getBoundingClientRect().right, window.innerWidth);
const scrolls = element => {
  for (; element && element !== article; element = element.parentElement)
    if (/auto|scroll/.test(getComputedStyle(element).overflowX)) return true;
  return false;
};
return [...article.querySelectorAll("*")]
  .filter(element => element.getBoundingClientRect().right > edge + 1 && !scrolls(element))
  .map(element => element.outerHTML.slice(0, 200));
"""
