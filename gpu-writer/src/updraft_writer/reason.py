# SPDX-License-Identifier: Apache-2.0
"""Why a file is encoded on the GPU or the CPU: receipts give it in words, metrics count it by kind."""

import enum
from dataclasses import dataclass


class ReasonKind(enum.Enum):
    """The GPU, or the kind of reason that keeps a file on the CPU."""

    GPU = "gpu"
    ASKED = "asked"
    NOT_INSTALLED = "not-installed"
    NO_DEVICE = "no-device"
    CODEC = "codec"
    OPTION = "option"
    TYPE = "type"
    NO_ROWS = "no-rows"
    DEVICE_MEMORY = "device-memory"
    DEVICE_FAILED = "device-failed"


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason. Its text is one line that says what to change."""

    kind: ReasonKind
    text: str

    def __str__(self) -> str:
        return f"{'gpu' if self.kind is ReasonKind.GPU else 'cpu'}: {self.text}"


class NotOnGpuError(Exception):
    """Raised when a file cannot be encoded on the GPU."""

    def __init__(self, kind: ReasonKind, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(kind, text)
