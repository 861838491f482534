# SPDX-License-Identifier: Apache-2.0
"""Verification of JSON Web Tokens of known issuers. Only a service that knows issuers imports this module."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import jwt
import structlog

from updraft.errors import UnauthenticatedError
from updraft.service.identity import Identity
from updraft.service.issuer import Issuer, RevokedTokens
from updraft.service.issuer_keys import Keys, KeySource, SigningKey, UrlKeys, fetch_keys, parse_keys
from updraft.service.security import Revocable, SecurityError

_log = structlog.get_logger(__name__)

_LEEWAY_SECONDS = 30
_MAX_VERIFIED = 4096
# Largest time accepted in a token's claims. It lies beyond the year 30,000, so only invalid claims exceed it.
_MOST_SECONDS = 10**12

_REQUIRED = ["exp", "iat", "iss", "aud"]
_UNKNOWN = "the token is not one that this service knows"
"""Error for every token without a valid signature of a known issuer, whatever is wrong with it. Errors for properly
signed tokens say what is wrong."""
# Log at most one refused token in this time, because unknown clients could otherwise fill the log.
_LOG_SECONDS = 1.0
# Errors that PyJWT raises: its own, and Python's, for example for claims that are not numbers.
_UNREADABLE = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class _Verified:
    identity: Identity
    source: KeySource
    keys: Keys
    names: Mapping[str, Any]
    """Claims by which the token may be revoked."""
    until_seconds: float


class IssuedTokens:
    """Verifier of tokens. It remembers verified tokens until they expire or a key changes."""

    def __init__(
        self,
        issuers: Iterable[Issuer],
        now: Callable[[], float] = time.time,
        source_of: Callable[[Issuer], KeySource] | None = None,
    ) -> None:
        """Open the key sources; raise SecurityError if a key file cannot be used.

        Args:
            issuers: Issuers whose tokens are accepted.
            now: Clock in seconds since 1970, which decides how long a verified token is remembered.
            source_of: Function that returns an issuer's key source; None uses the file or URL that the issuer names.
        """
        self._now = now
        self._source_of = source_of or _source_of
        self._issuers = tuple(issuers)
        self._sources = {issuer: self._source_of(issuer) for issuer in self._issuers}
        self.revoked = RevokedTokens()
        """Revoked tokens; the caller keeps them up to date."""
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        self._logs_again_seconds = 0.0
        self.refresh()

    def update(self, issuers: Iterable[Issuer]) -> None:
        """Replace the accepted issuers. While an issuer's keys cannot be used, its tokens are refused."""
        self._issuers = tuple(issuers)
        self._sources = {issuer: source for issuer, source in self._sources.items() if issuer in self._issuers}
        self._verified.clear()
        for issuer in self._issuers:
            self._add(issuer)
        self.refresh()

    def refresh(self) -> None:
        """Check all key sources for changes."""
        for source in self._sources.values():
            source.refresh()

    def _add(self, issuer: Issuer) -> KeySource | None:
        if issuer not in self._sources:
            try:
                self._sources[issuer] = self._source_of(issuer)
            except SecurityError as error:
                _log.error("keys of an issuer cannot be used", issuer=issuer.name, reason=str(error))
        return self._sources.get(issuer)

    def identity(self, token: str, *, waited_seconds: float = 0.0) -> Identity:
        """Return the identity of a token that was valid `waited_seconds` ago.

        Raises:
            UnauthenticatedError: The token is invalid, expired or revoked.
            PermissionDeniedError: The token claims more than its issuer may grant.
        """
        digest = hashlib.sha256(token.encode()).digest()
        known = self._verified.get(digest)
        if known is not None:
            is_timely = self._now() - waited_seconds < known.until_seconds
            if known.source.current is known.keys and is_timely and not self.revoked.has(digest, known.names):
                self._verified.move_to_end(digest)
                return known.identity
            del self._verified[digest]
        verified = self._verify(token, waited_seconds)
        if self.revoked.has(digest, verified.names):
            raise self._unknown("it was revoked", issuer=verified.identity.name)
        self._verified[digest] = verified
        if len(self._verified) > _MAX_VERIFIED:
            self._verified.popitem(last=False)
        return verified.identity

    @property
    def changes(self) -> int:
        """Number of times that a fetch from a URL returned changed keys."""
        return sum(source.changes for source in self._sources.values() if isinstance(source, UrlKeys))

    def awaited_keys(self, token: str) -> Future[None] | None:
        """Fetch the keys of the token's issuer again if no known key fits the token.

        Return a future that ends with the fetch, or None if no fetch is needed or due.
        """
        try:
            issuer, kid = self._claimed(token)
        except UnauthenticatedError:
            return None
        source = self._sources.get(issuer)
        if not isinstance(source, UrlKeys) or _candidates(source.current or (), kid):
            return None
        return source.look_again()

    def _claimed(self, token: str) -> tuple[Issuer, str | None]:
        """Return the issuer and key id that the token claims, before its signature is checked."""
        try:
            found = jwt.decode_complete(token, options={"verify_signature": False})
        except _UNREADABLE:
            raise self._unknown("it is not a JSON Web Token") from None
        kid = found["header"].get("kid")
        claimed = found["payload"].get("iss")
        for issuer in self._issuers:
            if issuer.issuer == claimed:
                return issuer, kid if isinstance(kid, str) else None
        raise self._unknown("its issuer is not in the identities file")

    def _verify(self, token: str, waited_seconds: float) -> _Verified:
        issuer, kid = self._claimed(token)
        source = self._add(issuer)
        keys = source.current if source is not None else None
        if source is None or keys is None:
            raise self._unknown("the keys of its issuer cannot be used", issuer.name)
        candidates = _candidates(keys, kid)
        if not candidates:
            raise self._unknown("its key is not one of the issuer's", issuer.name)
        claims = _signed_claims(token, issuer, candidates, _LEEWAY_SECONDS + waited_seconds)
        if claims is None:
            raise self._unknown("its signature is not the issuer's", issuer.name)
        until_seconds = _until_seconds(claims, issuer)
        names = {"jti": claims.get("jti"), "sub": claims.get("sub")}
        return _Verified(issuer.identity(claims), source, keys, names, until_seconds)

    def _unknown(self, reason: str, issuer: str = "") -> UnauthenticatedError:
        """Return the error for an unproven token; only the log contains the reason."""
        now = time.monotonic()
        if now >= self._logs_again_seconds:
            self._logs_again_seconds = now + _LOG_SECONDS
            _log.info("a token was refused", reason=reason, issuer=issuer)
        return UnauthenticatedError(_UNKNOWN)


def _source_of(issuer: Issuer) -> KeySource:
    if issuer.keys_url is not None:
        fetch = partial(fetch_keys, ca_file=issuer.keys_ca_file, token_file=issuer.keys_token_file)
        return UrlKeys(issuer.keys_url, fetch=fetch, refresh_seconds=issuer.keys_refresh_seconds)
    assert issuer.keys_file is not None
    return Revocable(issuer.keys_file, parse_keys, "signing key")


def _candidates(keys: Keys, kid: str | None) -> Keys:
    """Return the keys that may have signed a token with this key id.

    A key of a PEM file has no id and fits every token; a token without an id may be signed with any key.
    """
    return tuple(key for key in keys if kid is None or key.kid is None or key.kid == kid)


def _signed_claims(
    token: str, issuer: Issuer, candidates: Iterable[SigningKey], leeway_seconds: float
) -> dict[str, Any] | None:
    """Return the claims, or None if none of the keys signed the token; raise UnauthenticatedError if a claim is bad."""
    for key in candidates:
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=leeway_seconds,
                options={"require": _REQUIRED},
            )
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
            continue
        except _UNREADABLE as error:
            raise UnauthenticatedError(_reason(error)) from None
    return None


def _reason(error: BaseException) -> str:
    """Say what is wrong with a token whose signature is valid."""
    match error:
        case jwt.ExpiredSignatureError():
            return "the token has expired"
        case jwt.ImmatureSignatureError():
            return "the token is not valid yet"
        case jwt.InvalidAudienceError():
            return "the token is for another audience than this service"
        case jwt.MissingRequiredClaimError():
            return f"the token lacks the claim {error.claim!r}"
        case _:
            return _UNKNOWN


def _until_seconds(claims: dict[str, Any], issuer: Issuer) -> float:
    """Return the end of the token's validity, leeway included, in seconds since 1970.

    Raises:
        UnauthenticatedError: The time from `iat` to `exp` is longer than the issuer allows.
    """
    expires, issued = int(claims["exp"]), int(claims["iat"])
    # Numbers of thousands of digits could not be formatted into the error below.
    if abs(issued) > _MOST_SECONDS or abs(expires) > _MOST_SECONDS:
        raise UnauthenticatedError(_UNKNOWN)
    if expires - issued > issuer.max_lifetime_seconds:
        raise UnauthenticatedError(
            f"the token's lifetime is {expires - issued} s from 'iat' to 'exp', the limit of its issuer is "
            f"{issuer.max_lifetime_seconds} s"
        )
    return float(expires + _LEEWAY_SECONDS)
