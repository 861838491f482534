# SPDX-License-Identifier: Apache-2.0
"""The life of one file: what may happen when, and the first error, which is the error for everybody after it."""

import enum

from updraft.errors import InternalError, UpdraftError


class FileState(enum.Enum):
    """Where a file is in its life."""

    OPEN = "open"
    FINISHING = "finishing"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    POISONED = "poisoned"
    ABORTED = "aborted"


class FileEvent(enum.Enum):
    """What moves a file to another state."""

    FINISH = "finish"
    PUBLISH = "publish"
    PUBLISHED = "published"
    # A step of the file itself failed.
    FAIL = "fail"
    # Somebody else ends the file: a drain.
    INTERRUPT = "interrupt"
    ABORT = "abort"


_TRANSITIONS = {
    (FileState.OPEN, FileEvent.FINISH): FileState.FINISHING,
    (FileState.OPEN, FileEvent.FAIL): FileState.POISONED,
    (FileState.OPEN, FileEvent.INTERRUPT): FileState.POISONED,
    (FileState.OPEN, FileEvent.ABORT): FileState.ABORTED,
    (FileState.FINISHING, FileEvent.PUBLISH): FileState.PUBLISHING,
    (FileState.FINISHING, FileEvent.FAIL): FileState.POISONED,
    (FileState.FINISHING, FileEvent.INTERRUPT): FileState.POISONED,
    (FileState.FINISHING, FileEvent.ABORT): FileState.ABORTED,
    (FileState.PUBLISHING, FileEvent.PUBLISHED): FileState.PUBLISHED,
    (FileState.PUBLISHING, FileEvent.FAIL): FileState.POISONED,
    # Too late: only the storage decides what becomes of the file.
    (FileState.PUBLISHING, FileEvent.INTERRUPT): FileState.PUBLISHING,
    (FileState.PUBLISHING, FileEvent.ABORT): FileState.PUBLISHING,
    # What is on its way when a file has ended may still fail, and whoever cleans up need not know that it has.
    (FileState.POISONED, FileEvent.FAIL): FileState.POISONED,
    (FileState.POISONED, FileEvent.INTERRUPT): FileState.POISONED,
    (FileState.POISONED, FileEvent.ABORT): FileState.POISONED,
    (FileState.ABORTED, FileEvent.FAIL): FileState.ABORTED,
    (FileState.ABORTED, FileEvent.INTERRUPT): FileState.ABORTED,
    (FileState.ABORTED, FileEvent.ABORT): FileState.ABORTED,
    (FileState.PUBLISHED, FileEvent.INTERRUPT): FileState.PUBLISHED,
    (FileState.PUBLISHED, FileEvent.ABORT): FileState.PUBLISHED,
}


class FileLife:
    """The state of one file; the one way to change it is an event."""

    def __init__(self) -> None:
        self.state = FileState.OPEN
        self.error: UpdraftError | None = None

    def handle(self, event: FileEvent) -> None:
        """Move to the next state; raises the file's error, or InternalError for what cannot happen in its state."""
        state = _TRANSITIONS.get((self.state, event))
        if state is None:
            self.check()
            raise InternalError(f"{event.value} cannot happen to a file that is {self.state.value}")
        self.state = state

    def fail(self, error: UpdraftError) -> None:
        """Poison the file, unless it has ended already: the first error stays."""
        if (self.state, FileEvent.FAIL) in _TRANSITIONS:
            self.handle(FileEvent.FAIL)
            self.error = self.error or error

    def interrupt(self, error: UpdraftError) -> None:
        """Poison the file with an error that is not its own, unless it has ended or is being published."""
        self.handle(FileEvent.INTERRUPT)
        if self.state is FileState.POISONED:
            self.error = self.error or error

    def check(self) -> None:
        """Raise unless the file still lives: its first error, or an InternalError once it was given up."""
        if self.error is not None:
            raise self.error
        if self.state is FileState.ABORTED:
            raise InternalError("the file was given up")

    def check_open(self) -> None:
        """Raise unless the file still takes batches."""
        self.check()
        if self.state is not FileState.OPEN:
            raise InternalError(f"a batch came for a file that is {self.state.value}")
