# SPDX-License-Identifier: Apache-2.0
"""Checks that a driver has signed a session function for exactly the exchange that sends it.

The front checks a statement once, before it sends anything of the exchange to a worker. If the statement expires later,
the open exchange continues. When the exchange receives its worker, the front checks again whether the signer or the
function was revoked, because a client can let an exchange wait for as long as it likes. Revocation does not end an
exchange that already runs.
"""

import asyncio
import enum
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from updraft.errors import FunctionRefusedError
from updraft.service.identity import Identity
from updraft.service.metrics import Metrics
from updraft.service.security import Revocable
from updraft.v1.exchange_pb2 import SignedStatement, Statement
from updraft_server.front.request.request import Request
from updraft_server.pool.leases import Owner

if TYPE_CHECKING:
    from updraft_server.front.signatures.signers_file import KnownSigners, Signer

# Tolerance for the difference between clocks of drivers and pools.
_SKEW_SECONDS = 30.0
_LOOK_SECONDS = 1.0


class Outcome(enum.StrEnum):
    """Result of the check of a session function's signature."""

    VALID = "valid"
    UNSIGNED = "unsigned"
    """The function has no signature, and may run without one."""
    REFUSED = "refused"


class Signatures:
    """Checks of a pool's session functions against its file of signers, which is read again when it changes.

    A file that has been missing or unusable for two seconds counts as a file without signers, so no signature is valid.
    """

    def __init__(self, signers_file: Path | None, *, required: bool, clock: Callable[[], float] = time.time) -> None:
        """Read the file; raise SecurityError if it cannot be used.

        Args:
            signers_file: File of the signers; None disables all checks of signatures.
            required: Whether to refuse functions without a signature, if there is a file.
            clock: Returns the seconds since the epoch.
        """
        self._known = _revocable(signers_file) if signers_file is not None else None
        self._required = required
        self._clock = clock
        self._outcomes: Counter[Outcome] = Counter()

    @property
    def are_looked_at(self) -> bool:
        """Whether signatures are checked, because there is a file of signers."""
        return self._known is not None

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Number of session functions by outcome."""
        return {outcome: self._outcomes[outcome] for outcome in Outcome}

    def show_in(self, metrics: Metrics) -> None:
        """Add the counter of session functions."""
        metrics.count_by_label(
            "updraft_session_functions",
            "Functions that sessions have shipped, by the outcome of checking their signature.",
            "signature",
            lambda: self.outcomes,
        )

    async def watch(self) -> None:
        """Check the file every second, until cancelled; return at once if there is no file."""
        while self._known is not None:
            self._known.refresh()
            await asyncio.sleep(_LOOK_SECONDS)

    def check(self, request: Request, owner: Owner) -> "CheckedFunction":
        """Return the session function if it needs no signature or, apart from its payload, matches its statement.

        Raises FunctionRefusedError. Its message gives details, so the caller must check identity and request first.
        """
        try:
            return self._checked(request, owner)
        except FunctionRefusedError:
            self.count(Outcome.REFUSED)
            raise

    def signer_of(self, signed: SignedStatement, identity: Identity) -> str:
        """Return the name of the driver that signed a statement, if the statement is valid now for this caller.

        Raises FunctionRefusedError, or PermissionDeniedError if the statement belongs to another tenant.
        """
        signer, statement = self._verified(signed)
        if problem := _foreign(signer, identity.tenant_of([statement.owner.tenant])) or self._untimely(
            statement, signer
        ):
            raise _not_for_this(signer, problem)
        return signer.name

    def count(self, outcome: Outcome) -> None:
        """Count the outcome of one function."""
        self._outcomes[outcome] += 1

    def _checked(self, request: Request, owner: Owner) -> "CheckedFunction":
        is_signed = request.command.HasField("signed_statement")
        if self._known is None or not (is_signed or self._required):
            return CheckedFunction(self, None)
        if not is_signed:
            raise FunctionRefusedError(
                "this pool runs only functions that their driver has signed, and this one has no signature: set "
                "spark.updraft.udf.signingKeyFile on the driver. Most Python workers that Spark itself starts have no "
                "signature even then, because they load unsigned pickles: use functions on DataFrames instead"
            )
        signer, statement = self._verified(request.command.signed_statement)
        if problem := _mismatch(statement, request, owner, signer) or self._untimely(statement, signer):
            raise _not_for_this(signer, problem)
        self._refuse_revoked(statement.command_sha256)
        return CheckedFunction(self, SignedBy(signer.name, request.command.signed_statement.key_sha256, statement))

    def check_again(self, signed_by: "SignedBy") -> None:
        """Raise FunctionRefusedError if the signer or a function was revoked since the statement was checked."""
        try:
            self._signer(signed_by.key_sha256)
            self._refuse_revoked(signed_by.digests)
        except FunctionRefusedError:
            self.count(Outcome.REFUSED)
            raise

    def _refuse_revoked(self, functions: Sequence[bytes]) -> None:
        known = self._known.current if self._known is not None else None
        revoked = [digest for digest in functions if known is None or digest in known.revoked_functions]
        if revoked:
            digests = ", ".join(f"sha256:{digest.hex()}" for digest in revoked)
            raise FunctionRefusedError(f"a function was revoked on this pool: {digests}")

    def _signer(self, key_sha256: bytes) -> "Signer":
        known = self._known.current if self._known is not None else None
        if known is None:
            raise FunctionRefusedError(
                "this pool accepts no signature, because it cannot read its signers file: see its log"
            )
        signer = known.by_key.get(key_sha256)
        if signer is None:
            raise FunctionRefusedError(
                f"this pool does not know the key that signed the function (SHA-256 {key_sha256[:32].hex()}): "
                "it was never among its signers, or was revoked"
            )
        return signer

    def _verified(self, signed: SignedStatement) -> "tuple[Signer, Statement]":
        from cryptography.exceptions import InvalidSignature

        signer = self._signer(signed.key_sha256)
        try:
            signer.key.verify(signed.signature, signed.statement)
            return signer, Statement.FromString(signed.statement)
        except InvalidSignature:
            raise FunctionRefusedError(
                f"the signature does not match its statement: the key of {signer.name!r} signed something else, or the "
                "statement was changed on its way"
            ) from None
        except DecodeError:
            raise FunctionRefusedError(f"the signed statement of {signer.name!r} is not about a function") from None

    def _untimely(self, statement: Statement, signer: "Signer") -> str:
        """Return why the statement is not valid now; empty if it is valid."""
        issued_seconds, expires_seconds = (
            milliseconds / 1000
            for milliseconds in (statement.issued_at_milliseconds, statement.expires_at_milliseconds)
        )
        now_seconds = self._clock()
        if expires_seconds - issued_seconds > signer.max_lifetime_seconds:
            return (
                f"it is valid for {expires_seconds - issued_seconds:g} seconds, but its signer may sign for at most "
                f"{signer.max_lifetime_seconds:g}: lower spark.updraft.udf.signatureLifetime"
            )
        if now_seconds > expires_seconds + _SKEW_SECONDS:
            return f"it expired {now_seconds - expires_seconds:.0f} seconds ago: plan the query again, to sign it again"
        if issued_seconds > now_seconds + _SKEW_SECONDS:
            return (
                f"it was issued {issued_seconds - now_seconds:.0f} seconds in the future: set the clocks of driver and "
                "pool"
            )
        return ""


class SignedBy:
    """Signer of a session function, and the signed statement."""

    def __init__(self, signer: str, key_sha256: bytes, statement: Statement) -> None:
        self.signer = signer
        self.key_sha256 = key_sha256
        self.digests: Sequence[bytes] = tuple(statement.command_sha256)
        """SHA-256 of each pickled function, as the signer states it."""
        self.payload_sha256 = statement.payload_sha256


class CheckedFunction:
    """Session function whose payload has to be checked against its signature, if it has one."""

    def __init__(self, signatures: Signatures, signed_by: SignedBy | None) -> None:
        """Create the check of one function; `signed_by` is None if the function needs no signature and has none."""
        self.signed_by = signed_by
        self._signatures = signatures

    def check_again(self) -> None:
        """Raise FunctionRefusedError if the signer or the function was revoked since the check."""
        if self.signed_by is not None:
            self._signatures.check_again(self.signed_by)

    def fits(self, payload: bytes) -> bool:
        """Return whether this is the payload that was signed; may be called in another thread."""
        return self.signed_by is None or self.signed_by.payload_sha256 == hashlib.sha256(payload).digest()

    def settle(self, *, fits: bool) -> None:
        """Count the function; raise FunctionRefusedError if its payload is not the signed payload."""
        if self.signed_by is not None and not fits:
            self._signatures.count(Outcome.REFUSED)
            raise FunctionRefusedError(
                f"the signature of {self.signed_by.signer!r} is not for this exchange: the function is not the one "
                "that was signed"
            )
        self._signatures.count(Outcome.UNSIGNED if self.signed_by is None else Outcome.VALID)


def _revocable(path: Path) -> "Revocable[KnownSigners]":
    # Importing `signers_file` takes a tenth of a second, so only a pool that checks signatures imports it.
    from updraft_server.front.signatures.signers_file import parse_signers

    return Revocable(path, parse_signers, "signer")


def _not_for_this(signer: "Signer", problem: str) -> FunctionRefusedError:
    return FunctionRefusedError(f"the signature of {signer.name!r} is not for this exchange: {problem}")


def _foreign(signer: "Signer", tenant: str) -> str:
    if signer.tenants is None or tenant in signer.tenants:
        return ""
    return f"the exchange is of the tenant {tenant!r}, for which this key may not sign"


def _mismatch(statement: Statement, request: Request, owner: Owner, signer: "Signer") -> str:
    """Return how the statement differs from the exchange; empty if they agree."""
    signed = statement.owner
    if problem := _foreign(signer, owner.tenant):
        return problem
    if signed.tenant and signed.tenant != owner.tenant:
        return f"it is for the tenant {signed.tenant!r}, but the exchange is of {owner.tenant!r}"
    if signed.application_id != owner.application_id:
        return f"it is for the application {signed.application_id!r}, but the exchange is of {owner.application_id!r}"
    if signed.session_id != owner.session_id:
        return f"it is for the session {signed.session_id!r}, but the exchange is of {owner.session_id!r}"
    if statement.function != request.command.session:
        return f"the signed function differs in {_differing(statement, request)}"
    if statement.schema_sha256 != hashlib.sha256(request.schema).digest():
        return "the schema of the arguments differs"
    return ""


def _differing(statement: Statement, request: Request) -> str:
    ours, theirs = request.command.session, statement.function
    names = [field.name for field in ours.DESCRIPTOR.fields if getattr(ours, field.name) != getattr(theirs, field.name)]
    return ", ".join(names) or "a field that this pool does not know"
