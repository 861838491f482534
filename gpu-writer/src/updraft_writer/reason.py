# SPDX-License-Identifier: Apache-2.0
"""Reasons for encoding a file on the GPU or the CPU. Receipts contain their texts, metrics count them by kind."""

import enum
from dataclasses import dataclass


class ReasonKind(enum.Enum):
    """Kind of a reason: `GPU`, or the obstacle that keeps a file on the CPU."""

    GPU = "gpu"
    ASKED = "asked"
    NOT_INSTALLED = "not-installed"
    NO_DEVICE = "no-device"
    CODEC = "codec"
    COST = "cost"
    OPTION = "option"
    TYPE = "type"
    NO_ROWS = "no-rows"
    DEVICE_MEMORY = "device-memory"
    DEVICE_FAILED = "device-failed"


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason for encoding a file on the GPU or the CPU, with a text of one line."""

    kind: ReasonKind
    text: str

    def __str__(self) -> str:
        return f"{'gpu' if self.kind is ReasonKind.GPU else 'cpu'}: {self.text}"


class NotOnGpuError(Exception):
    """Raised when a file cannot be encoded on the GPU."""

    def __init__(self, kind: ReasonKind, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(kind, text)
