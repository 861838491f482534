# SPDX-License-Identifier: Apache-2.0
"""Why a file is encoded where it is: receipts tell it in words, metrics count it by its kind."""

import enum
from dataclasses import dataclass


class ReasonKind(enum.Enum):
    """GPU, or what keeps a file on the CPU."""

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
    """A reason; its text is one line that names what has to change for another one."""

    kind: ReasonKind
    text: str

    def __str__(self) -> str:
        return f"{'gpu' if self.kind is ReasonKind.GPU else 'cpu'}: {self.text}"


UNASKED = Reason(ReasonKind.ASKED, "nobody asked for another encoder")
