# SPDX-License-Identifier: Apache-2.0
"""Limits that an operator sets for each tenant in a file, and the errors for invalid files and exceeded limits."""

import hashlib
from pathlib import Path

import pytest

from updraft.service.authenticator import Authenticator
from updraft.service.exchange import share_of
from updraft.service.identities_file import parse_identities
from updraft.service.identity import Identity
from updraft.service.tenants import NO_CAPS, Caps, Claims, TenantCaps

DIGEST = hashlib.sha256(b"a").hexdigest()
ENTRY = f'[[identity]]\nname = "a"\ntenant = "a"\nscopes = ["call"]\ntoken_sha256 = ["{DIGEST}"]\n'


def caps(tables: str) -> Caps:
    known = parse_identities((ENTRY + tables).encode()).caps
    return Caps(lambda tenant: known.get(tenant) or known.get("*", NO_CAPS))


def test_caps_are_those_of_the_tenant_then_those_of_every_tenant() -> None:
    found = caps('[[tenant]]\nname = "a"\nmax_workers = 3\n[[tenant]]\nname = "*"\nmax_workers = 1\nmax_files = 9\n')
    assert found.of("a") == TenantCaps(max_workers=3, max_files=9)
    assert found.of("b") == TenantCaps(max_workers=1, max_files=9)
    assert caps("").of("a") == NO_CAPS


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("max_wokers = 3", r"tenant\.0\.max_wokers: Extra inputs"),
        ("max_workers = 0", r"tenant\.0\.max_workers: Input should be greater than 0"),
        ("max_workers = 1.5", r"tenant\.0\.max_workers: Input should be a valid integer"),
        ('max_workers = "3"', r"tenant\.0\.max_workers: Input should be a valid integer"),
        ("max_workers = true", r"tenant\.0\.max_workers: Input should be a valid integer"),
        ("", "the tenant 'a' has no cap"),
        ('max_files = 3\n[[tenant]]\nname = "a"\nmax_files = 4', "the tenant 'a' has two entries"),
    ],
)
def test_a_file_that_may_mean_another_cap_is_refused(table: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        caps(f'[[tenant]]\nname = "a"\n{table}\n')


def test_a_refusal_names_the_cap_what_is_used_and_what_to_do() -> None:
    found = caps('[[tenant]]\nname = "a"\nmax_files = 3\n')
    assert not found.exceeded("max_files", "a", 2, 1)
    assert found.exceeded("max_files", "a", 3, 1)
    assert not found.exceeded("max_files", "b", 3, 1)
    says = found.refusal("max_files", "a", 3, 1)
    for part in (
        "'a'",
        "3 open files",
        "1 more",
        "its cap is 3",
        "max_files",
        "retry when some of its own work has ended",
    ):
        assert part in says
    assert found.refusals["max_files"] == 1
    assert sum(found.refusals.values()) == 1


def test_caps_change_with_the_file_and_stay_while_it_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "identities.toml"
    path.write_text(ENTRY + '[[tenant]]\nname = "a"\nmax_files = 3\n')
    authenticator = Authenticator(None, path)
    assert authenticator.caps_of("a").max_files == 3
    path.write_text(ENTRY + '[[tenant]]\nname = "*"\nmax_files = 4444\n')
    authenticator.refresh()
    assert authenticator.caps_of("a").max_files == 4444
    path.unlink()
    authenticator.refresh()
    assert authenticator.caps_of("a").max_files == 4444


class Call:
    """Call of an identity."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity


def test_holders_of_tokens_have_one_share_where_others_are_known_by_name(tmp_path: Path) -> None:
    (tmp_path / "identities.toml").write_text(ENTRY + '[[tenant]]\nname = "*"\nmax_files = 1\n')
    (tmp_path / "tokens").write_text("plain\n")

    def shares(authenticator: Authenticator, token: str, tenants: str) -> set[str]:
        # share_of() reads only the identity of a call.
        return {share_of(Call(authenticator.identity(f"Bearer {token}")), tenant) for tenant in tenants}  # type: ignore[arg-type]

    both = Authenticator(tmp_path / "tokens", tmp_path / "identities.toml")
    assert len(shares(both, "plain", "abc")) == 1
    assert shares(both, "plain", "a").isdisjoint({"a"})
    assert shares(both, "a", "a") == {"a"}
    assert shares(Authenticator(tmp_path / "tokens", None), "plain", "abc") == {"a", "b", "c"}


def test_a_claim_is_for_others_to_respect_and_ends() -> None:
    now = 0.0
    claims: Claims[str] = Claims(lambda: now)
    assert not claims.of_others("a")
    claims.note("a")
    assert not claims.of_others("a")
    assert claims.of_others("b")
    now = 11.0
    assert not claims.of_others("b")
    assert not claims.tenants
