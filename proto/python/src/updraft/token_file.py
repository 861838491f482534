# SPDX-License-Identifier: Apache-2.0
"""Files with bearer tokens, one on each line, as clients read them."""


def first_token(text: str) -> str:
    """Return the first token of a file's text, in which lines with # are comments; empty if there is none."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")
