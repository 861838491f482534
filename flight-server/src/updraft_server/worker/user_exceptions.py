# SPDX-License-Identifier: Apache-2.0
"""What a function raised, as the error that its client gets."""

import traceback as tracebacks

from updraft.errors import MAX_STATUS_MESSAGE_BYTES, UserError, keep_start
from updraft_server.worker.missing_modules import explain_missing_module


def user_error(exception: BaseException) -> UserError:
    """The error for what a registered function raised."""
    explain_missing_module(exception)
    return UserError(
        describe(exception),
        exception_class=qualified_name(exception),
        traceback="".join(tracebacks.format_exception(exception)),
    )


def describe(exception: BaseException) -> str:
    """An exception in one short line: its class and the first line of its message."""
    try:
        text = str(exception).strip()
    except Exception as broken:
        text = f"<its message could not be read: {type(broken).__name__}>"
    line = f"{type(exception).__name__}: {text}".split("\n", 1)[0] if text else type(exception).__name__
    return keep_start(line, MAX_STATUS_MESSAGE_BYTES)


def qualified_name(exception: BaseException) -> str:
    """The class of an exception with its module, as tracebacks name it."""
    cls = type(exception)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
