# SPDX-License-Identifier: Apache-2.0
"""Verifies JSON Web Tokens of known issuers. Only a service that knows issuers imports this."""

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
# Of any time that a token may name: beyond the year 30,000.
_MOST_SECONDS = 10**12

_REQUIRED = ["exp", "iat", "iss", "aud"]
_UNKNOWN = "the token is not one that this service knows"
"""What everybody is told whose token is not proven to be of a known issuer: as for a token that is none. The holder of
one that is hears what is wrong with it."""
# Strangers decide how often a token is refused.
_LOG_SECONDS = 1.0
# What PyJWT raises, besides its own errors, for claims that are no numbers.
_UNREADABLE = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class _Verified:
    identity: Identity
    source: KeySource
    keys: Keys
    names: Mapping[str, Any]
    """Its claims by which it may be revoked."""
    until_seconds: float


class IssuedTokens:
    """Tells whose a token is. Tokens that were verified are remembered until they expire or a key changes."""

    def __init__(
        self,
        issuers: Iterable[Issuer],
        now: Callable[[], float] = time.time,
        source_of: Callable[[Issuer], KeySource] | None = None,
    ) -> None:
        """Raises SecurityError when a file of keys cannot be used.

        Args:
            issuers: Whose tokens count.
            now: Seconds since 1970, for how long a verified token is remembered.
            source_of: Where an issuer's keys come from; None: from the file or the URL that it names.
        """
        self._now = now
        self._source_of = source_of or _source_of
        self._issuers = tuple(issuers)
        self._sources = {issuer: self._source_of(issuer) for issuer in self._issuers}
        self.revoked = RevokedTokens()
        """Tokens that count no more."""
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        self._logs_again_seconds = 0.0
        self.refresh()

    def update(self, issuers: Iterable[Issuer]) -> None:
        """Other issuers count from now on; those whose keys cannot be used count when they can."""
        self._issuers = tuple(issuers)
        self._sources = {issuer: source for issuer, source in self._sources.items() if issuer in self._issuers}
        self._verified.clear()
        for issuer in self._issuers:
            self._add(issuer)
        self.refresh()

    def refresh(self) -> None:
        """Look at the keys."""
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
        """Whose it is; raises UnauthenticatedError, and PermissionDeniedError for more than its issuer may grant.

        One that was valid `waited_seconds` ago may have expired since.
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
        """How often keys have come from an address that were not there before."""
        return sum(source.changes for source in self._sources.values() if isinstance(source, UrlKeys))

    def awaited_keys(self, token: str) -> Future[None] | None:
        """When its issuer's keys will have been fetched again, if it may be signed with one that was not there yet."""
        try:
            issuer, kid = self._claimed(token)
        except UnauthenticatedError:
            return None
        source = self._sources.get(issuer)
        if not isinstance(source, UrlKeys) or _candidates(source.current or (), kid):
            return None
        return source.look_again()

    def _claimed(self, token: str) -> tuple[Issuer, str | None]:
        """The issuer and the key that it names, which nothing has proven yet."""
        try:
            found = jwt.decode_complete(token, options={"verify_signature": False})
        except _UNREADABLE:
            raise self._unknown("it is no JSON Web Token") from None
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
        """The error for a token that nothing is proven of; what is wrong with it is for the log alone."""
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
    """A key of a PEM file has no id; a token without one may be signed with any key."""
    return tuple(key for key in keys if kid is None or key.kid is None or key.kid == kid)


def _signed_claims(
    token: str, issuer: Issuer, candidates: Iterable[SigningKey], leeway_seconds: float
) -> dict[str, Any] | None:
    """None for a token that none of the keys has signed; raises UnauthenticatedError for what the claims lack."""
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
    """What is wrong with a token whose signature is right."""
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
    """Until when the token is valid; raises UnauthenticatedError for one that lives too long."""
    expires, issued = int(claims["exp"]), int(claims["iat"])
    # Python writes no number of thousands of digits.
    if abs(issued) > _MOST_SECONDS or abs(expires) > _MOST_SECONDS:
        raise UnauthenticatedError(_UNKNOWN)
    if expires - issued > issuer.max_lifetime_seconds:
        raise UnauthenticatedError(
            f"the token lives too long: {expires - issued} s from 'iat' to 'exp', and {issuer.max_lifetime_seconds} s "
            "are allowed"
        )
    return float(expires + _LEEWAY_SECONDS)
