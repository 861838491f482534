# SPDX-License-Identifier: Apache-2.0
"""Errors of a definition and of a call.

The classes of a call's errors load protobuf, so this module imports them late, to keep an author's import fast.
"""

import traceback as tracebacks
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from updraft.errors import ProtocolError, UserError

Explain: TypeAlias = Callable[[BaseException], None]
"""Callable that may add notes to an exception of the author's code before its traceback is formatted."""


class DeclarationError(TypeError):
    """Raised when a function is defined with hints, options or methods that a pool cannot use."""


def wrong_arguments(message: str) -> "ProtocolError":
    """Return the error for arguments that the function does not accept; the function's code has not run."""
    from updraft.errors import ProtocolError

    return ProtocolError(message)


def wrong_result(message: str) -> "UserError":
    """Return the error for a result that differs from the function's declaration."""
    from updraft.errors import UserError

    return UserError(message)


def raised(exception: BaseException) -> "UserError":
    """Return the error for an exception of the function's own code."""
    from updraft.errors import UserError

    return UserError(
        whole_message(exception),
        exception_class=qualified_name(exception),
        traceback="".join(tracebacks.format_exception(exception)),
    )


def describe(exception: BaseException) -> str:
    """Describe an exception in one short line: its class and the first line of its message."""
    from updraft.errors import MAX_LINE_BYTES, keep_start

    return keep_start(_named(exception).split("\n", 1)[0], MAX_LINE_BYTES)


def whole_message(exception: BaseException) -> str:
    """Return the class of an exception with all lines of its message and its notes, at most 64 KiB."""
    from updraft.errors import MAX_MESSAGE_BYTES, keep_start

    notes = getattr(exception, "__notes__", ())
    told = [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
    return keep_start("\n".join([_named(exception), *told]), MAX_MESSAGE_BYTES)


def _named(exception: BaseException) -> str:
    try:
        text = str(exception).strip()
    except Exception as broken:
        text = f"<its message could not be read: {type(broken).__name__}>"
    return f"{type(exception).__name__}: {text}" if text else type(exception).__name__


def qualified_name(exception: BaseException) -> str:
    """Return the class of an exception with its module, as tracebacks name it."""
    cls = type(exception)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
