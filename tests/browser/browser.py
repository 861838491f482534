# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven by Selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service


@contextmanager
def chromium(*, javascript: bool = True) -> Iterator[Any]:
    """Start a new browser for a test; `make test-browser` says what must be installed."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1240,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    if not javascript:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    driver = webdriver.Chrome(options=options, service=Service(_program("chromedriver")))
    try:
        driver.set_page_load_timeout(60)
        yield driver
    finally:
        driver.quit()


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not on PATH"
    return found
