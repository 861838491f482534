# SPDX-License-Identifier: Apache-2.0
"""Life cycle of one file: the events allowed in each state, and the first error, which every later step raises."""

import enum

from updraft.errors import InternalError, UpdraftError


class FileState(enum.Enum):
    """State of a file."""

    OPEN = "open"
    FINISHING = "finishing"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    POISONED = "poisoned"
    ABORTED = "aborted"


class FileEvent(enum.Enum):
    """Event that moves a file to another state."""

    FINISH = "finish"
    PUBLISH = "publish"
    PUBLISHED = "published"
    # A step in writing the file failed.
    FAIL = "fail"
    # An error from outside, such as a drain, ends the file.
    INTERRUPT = "interrupt"
    ABORT = "abort"


# FAIL, INTERRUPT and ABORT can come at any time. A state without a transition for one of these events ignores the
# event, so a published file stays published, and an ended file stays ended. While a file is being published, the
# storage alone decides its outcome.
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
}
_STEPS = (FileEvent.FINISH, FileEvent.PUBLISH, FileEvent.PUBLISHED)


class FileLife:
    """State of one file. Only events change the state."""

    def __init__(self) -> None:
        self.state = FileState.OPEN
        self.error: UpdraftError | None = None

    def handle(self, event: FileEvent) -> None:
        """Move to the next state. Raises the file's error or InternalError if the state does not allow a step."""
        state = _TRANSITIONS.get((self.state, event))
        if state is None and event in _STEPS:
            self.check()
            raise InternalError(f"{event.value} cannot happen to a file that is {self.state.value}")
        self.state = state or self.state

    def fail(self, error: UpdraftError) -> None:
        """Fail the file with an error, unless the file is published. A later error does not replace the first one."""
        self.handle(FileEvent.FAIL)
        if self.state is not FileState.PUBLISHED:
            self.error = self.error or error

    def interrupt(self, error: UpdraftError) -> None:
        """Fail the file with an error from outside, unless the file has ended or is being published."""
        self.handle(FileEvent.INTERRUPT)
        if self.state is FileState.POISONED:
            self.error = self.error or error

    def check(self) -> None:
        """Raise the file's first error, or InternalError if the file was given up."""
        if self.error is not None:
            raise self.error
        if self.state is FileState.ABORTED:
            raise InternalError("the file was aborted")

    def check_open(self) -> None:
        """Raise unless the file still accepts batches."""
        self.check()
        if self.state is not FileState.OPEN:
            raise InternalError(f"a batch came for a file that is {self.state.value}")
