# SPDX-License-Identifier: Apache-2.0
"""Sphinx's settings for the documentation site. `make docs-site` copies the pages, and runs Sphinx on the copy."""

import os

project = "Updraft"
author = "the authors of Updraft"
copyright = "the authors of Updraft; Apache License 2.0"  # noqa: A001 - Sphinx requires this name
release = version = os.environ["UPDRAFT_DOCS_VERSION"]

extensions = ["myst_nb", "sphinx_copybutton"]
# `make test-notebooks` runs the notebooks; the site shows the outputs that are saved in them.
nb_execution_mode = "off"
# Anchors of headings, as code hosts make them.
myst_heading_anchors = 6
nitpicky = True
# An option such as --listen keeps its hyphens.
smartquotes = False
# Blocks without a language are confs, plans and console output, which no highlighter understands.
highlight_language = "none"
# Bounds for `make docs-links`.
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_workers = 5
linkcheck_ignore = [r"https?://(?:localhost|127\.0\.0\.1)"]
copybutton_prompt_text = "$ "

_WIDE = (
    *("reference/server", "reference/writer", "reference/chart", "reference/functions"),
    "development/where-to-change-what",
)

templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme = "pydata_sphinx_theme"
html_title = f"Updraft {version}"
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"**": ["sections.html"]}
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "Updraft"},
    "navbar_start": ["navbar-logo"],
    "navbar_center": [],
    "navbar_end": ["version-switcher", "theme-switcher"],
    "navbar_persistent": ["search-button-field"],
    "article_header_start": [],
    # Pages that are wide tables have the room of the second sidebar too.
    "secondary_sidebar_items": {"**": ["page-toc"], **{page: [] for page in _WIDE}},
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    # Beside the folders of the versions.
    "switcher": {"json_url": "../switcher.json", "version_match": version},
    "check_switcher": False,
    "show_version_warning_banner": True,
}
