# SPDX-License-Identifier: Apache-2.0
"""The memory search of attempts finds a secret that is there, and finds none that is not."""

import secrets

from tests.attacks.attempts import holds_secret, shifted


def test_a_secret_is_found_where_it_lies_and_never_made_by_the_search() -> None:
    never_held = bytes(secrets.choice(shifted("0123456789abcdef")) for _ in range(32))
    held = secrets.token_hex(16)
    assert holds_secret(shifted(held))
    # Repeat the search, because it could find what the previous search has read.
    for _ in range(3):
        assert not holds_secret(never_held)
    assert held
