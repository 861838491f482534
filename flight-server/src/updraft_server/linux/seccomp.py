# SPDX-License-Identifier: Apache-2.0
"""seccomp filters: system calls that the kernel refuses to this process and its descendants, for good.

A filter compares numbers. It can test a call's arguments, but not the memory that they point to. It can test a process
id, but not who owns that process.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

from updraft_server.linux.system_calls import ARCHITECTURES, call_number, checked, libc

_PR_GET_SECCOMP, _PR_SET_SECCOMP, _MODE_FILTER = 21, 22, 2
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_ARCHITECTURE_NUMBERS = dict(zip(ARCHITECTURES, (0xC000003E, 0xC00000B7), strict=True))
_X32 = 0x40000000
_INSTRUCTION = "=HBBI"
_VALUE_OFFSET = 4
# Offsets in struct seccomp_data: number of the call, architecture, and the arguments of 64 bits each.
_CALL_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_ALL_BITS = 0xFFFFFFFF

Value: TypeAlias = int | str
"""Number, or the name of a number that is known only when the filter is installed."""


class Test(NamedTuple):
    """Test of 32 bits of an argument. On both architectures, the lower half of an argument comes first."""

    argument: int
    kind: int
    value: Value
    mask: int = _ALL_BITS
    half: int = 0
    expected: bool = True


def equals(argument: int, value: Value, *, mask: int = _ALL_BITS) -> Test:
    """Return a test that the lower half of the argument, masked, is the value."""
    return Test(argument, _EQUAL, value, mask)


def differs(argument: int, value: Value) -> Test:
    """Return a test that the lower half of the argument is not the value."""
    return Test(argument, _EQUAL, value, expected=False)


def has_any_bit(argument: int, bits: int) -> Test:
    """Return a test that the lower half of the argument has one of the bits."""
    return Test(argument, _ANY_BIT, bits)


def lacks_bits(argument: int, bits: int) -> Test:
    """Return a test that the lower half of the argument has none of the bits."""
    return Test(argument, _ANY_BIT, bits, expected=False)


def is_pointer(argument: int) -> tuple["Refused", ...]:
    """Return two alternatives that test that the argument is not zero: one test for each half of the argument."""
    return tuple((Test(argument, _EQUAL, 0, half=half, expected=False),) for half in (0, 1))


Refused: TypeAlias = Sequence[Test]
"""Tests of a call's arguments. The kernel refuses the call if all of them hold, or always if there are none."""


class Rule(NamedTuple):
    """Rule that refuses a call with an error."""

    call: str
    error: int
    when: Refused = ()


class Filter:
    """Filter that is assembled once, and then filled with the values that differ between processes."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        """Assemble the rules. Skip calls that this architecture lacks; raise KeyError for unknown calls."""
        foreign = _ERRNO | errno.ENOSYS
        self._program = bytearray()
        self._blanks: list[tuple[int, str]] = []
        self._add(_LOAD, _ARCHITECTURE_AT)
        self._add(_EQUAL, _ARCHITECTURE_NUMBERS[os.uname().machine], if_true=1)
        self._add(_RETURN, foreign)
        self._add(_LOAD, _CALL_AT)
        self._add(_AT_LEAST, _X32, if_false=1)
        self._add(_RETURN, foreign)
        for call, of_call in groupby(sorted(rules, key=lambda rule: rule.call), key=lambda rule: rule.call):
            number = call_number(call)
            if number is not None:
                self._add_call(number, list(of_call))
        self._add(_RETURN, _ALLOW)

    def filled(self, **values: int) -> bytes:
        """Return the program with `values` in place of the names that rules use."""
        program = bytearray(self._program)
        for offset, name in self._blanks:
            struct.pack_into("=I", program, offset, values[name] & _ALL_BITS)
        return bytes(program)

    def _add_call(self, number: int, rules: Sequence[Rule]) -> None:
        # Jumps go forward, so their length is known only after the instructions that they skip.
        jump = self._add(_EQUAL, number)
        for rule in rules:
            self._add_rule(rule)
        if all(rule.when for rule in rules):
            self._add(_RETURN, _ALLOW)
        self._jump_here(jump, if_true=False)

    def _add_rule(self, rule: Rule) -> None:
        jumps = []
        for test in rule.when:
            self._add(_LOAD, _ARGUMENTS_AT + 8 * test.argument + 4 * test.half)
            if test.mask != _ALL_BITS:
                self._add(_AND, test.mask)
            jumps.append((self._add(test.kind, test.value), not test.expected))
        self._add(_RETURN, _ERRNO | rule.error)
        for jump, if_true in jumps:
            self._jump_here(jump, if_true=if_true)

    def _add(self, code: int, value: Value, if_true: int = 0, if_false: int = 0) -> int:
        offset = len(self._program)
        if isinstance(value, str):
            self._blanks.append((offset + _VALUE_OFFSET, value))
            value = 0
        self._program += struct.pack(_INSTRUCTION, code, if_true, if_false, value & _ALL_BITS)
        return offset

    def _jump_here(self, jump: int, *, if_true: bool) -> None:
        size = struct.calcsize(_INSTRUCTION)
        # Bytes 2 and 3 of an instruction hold the jump lengths. Raises ValueError for a jump over 255 instructions.
        self._program[jump + (2 if if_true else 3)] = (len(self._program) - jump) // size - 1


def install(program: bytes) -> None:
    """Install a filled filter in the calling thread, before the process starts other threads; raises OSError.

    The process must have given up new privileges.
    """
    code = ctypes.create_string_buffer(program, len(program))
    count = len(program) // struct.calcsize(_INSTRUCTION)
    header = ctypes.create_string_buffer(struct.pack("@HP", count, ctypes.addressof(code)))
    checked(libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), header, 0, 0), "seccomp")


def is_filtered() -> bool:
    """Return whether this thread has a filter."""
    return bool(libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) == _MODE_FILTER)
