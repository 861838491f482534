# SPDX-License-Identifier: Apache-2.0
"""`make fuzz`: hostile bytes for everything that reads input from a client, a worker or a stranger.

Each target makes inputs, by changing valid inputs or by using the limits of their schema, and reads the inputs as the
service does. A finding is an error that does not blame the sender, a read that takes longer than an event loop may
stall, or a read during which the process grows beyond a bound. The program writes the input of a finding to a file.
After fixing the reader, move the file to tests/programs/fuzz/findings, whose inputs `make check` reads again. If the
program crashes, run it again with the printed seed.
"""

from __future__ import annotations

import argparse
import base64
import faulthandler
import importlib.util
import json
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.programs.fuzz.guided import guide
from tests.programs.fuzz.parts_targets import TARGETS as PARTS_TARGETS
from tests.programs.fuzz.pool_targets import TARGETS as POOL_TARGETS
from tests.programs.fuzz.target import Pieces, Target
from tests.programs.fuzz.token_targets import TARGETS as TOKEN_TARGETS
from tests.programs.fuzz.writer_targets import TARGETS as WRITER_TARGETS
from tests.support.paths import BUILD

TARGETS = (*POOL_TARGETS, *TOKEN_TARGETS, *WRITER_TARGETS, *PARTS_TARGETS)
FINDINGS = Path(__file__).with_name("findings")

_NEW_FINDINGS = BUILD / "fuzz"
_CORPUS = BUILD / "fuzz-corpus"
# Longest read of an input, which has a few KiB. These are CPU seconds, so that load on the machine does not look like a
# stall.
_STALL_SECONDS = 1.0
_MOST_GROWTH_BYTES = 256 << 20
_HANG_SECONDS = 90.0
_PROGRESS_SECONDS = 60.0
_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


class Finding(Exception):  # noqa: N818 - what is looked for
    """Raised for an input that a reader does not handle; the message describes what the reader did."""


def main() -> int:
    """Read hostile bytes for some time; return 1 if there was a finding."""
    options = _options()
    faulthandler.enable()
    _say(f"seed {options.seed}, {options.seconds:g} seconds for each of {len(options.targets)} targets")
    if options.guided:
        return _guided(options)
    found = [path for target in options.targets if (path := _campaign(target, options.seed, options.seconds))]
    for path in found:
        _say(f"finding: {path}")
    return 1 if found else 0


def _guided(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("atheris") is None:
        _say("atheris is not installed: `make fuzz FUZZ=--guided` installs it, on Linux for x86_64; nothing was fuzzed")
        return 1
    has_findings = False
    for target in options.targets:
        told, is_finding = guide(target.name, options.seed, options.seconds, _CORPUS / target.name.replace(" ", "-"))
        _say(told)
        has_findings |= is_finding
    return 1 if has_findings else 0


def read(target: Target, pieces: Pieces) -> None:
    """Read one input; raise Finding if the reader does not handle it."""
    memory_bytes, started = _reset_peak_bytes(), time.thread_time()
    try:
        target.read(pieces)
    except Exception as error:
        raise Finding(f"raised {type(error).__name__}: {error}") from error
    took_seconds = time.thread_time() - started
    if took_seconds > _STALL_SECONDS:
        raise Finding(f"took {took_seconds:.1f} seconds")
    grown_bytes = _peak_bytes() - memory_bytes
    if grown_bytes > _MOST_GROWTH_BYTES:
        raise Finding(f"took {grown_bytes >> 20} MiB of memory")


def saved(path: Path) -> tuple[Target, Pieces]:
    """Return the target and the input of the finding in this file."""
    stored = json.loads(path.read_text())
    target = next(target for target in TARGETS if target.name == stored["target"])
    return target, [base64.b64decode(piece) for piece in stored["pieces"]]


def _campaign(target: Target, seed: int, seconds: float) -> Path | None:
    """Read inputs of one target until the time is over or until the first finding; return the finding's file."""
    # Use a wall-clock limit too, because waiting uses no CPU time: if a reader hangs, print where it hangs and end the
    # campaign.
    faulthandler.dump_traceback_later(seconds + _HANG_SECONDS, exit=True)
    first_bytes, slowest_seconds, runs = _reset_peak_bytes(), 0.0, 0
    began = told = time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        if now - told > _PROGRESS_SECONDS:
            told = now
            _say(f"{target.name}: {runs:,} inputs so far")
        # Give each input its own generator, so that one failing input can be repeated without the inputs before it.
        pieces = target.make(random.Random(f"{seed} {target.name} {runs}"))
        started = time.thread_time()
        try:
            read(target, pieces)
        except Finding as finding:
            _say(f"{target.name}: input {runs} of seed {seed} {finding}")
            return save(target, pieces, f"{seed}-{runs}", str(finding))
        slowest_seconds = max(slowest_seconds, time.thread_time() - started)
        runs += 1
    grown = (_reset_peak_bytes() - first_bytes) >> 20
    _say(f"{target.name}: {runs:,} inputs, the slowest {slowest_seconds * 1000:.0f} ms, grew by {grown} MiB")
    return None


def save(target: Target, pieces: Pieces, name: str, what: str) -> Path:
    """Write a finding to a file; return its path."""
    _NEW_FINDINGS.mkdir(parents=True, exist_ok=True)
    path = _NEW_FINDINGS / f"{target.name.replace(' ', '-')}-{name}.json"
    encoded = [base64.b64encode(piece).decode() for piece in pieces]
    path.write_text(json.dumps({"target": target.name, "found": what, "pieces": encoded}, indent=1) + "\n")
    return path


def _reset_peak_bytes() -> int:
    """Return this process's memory and reset the recorded peak, because an earlier peak would hide growth."""
    _CLEAR_REFS.write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    [kibibytes] = re.findall(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
    return int(kibibytes) * 1024


def _options() -> argparse.Namespace:
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(
        prog="fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="for each target (10)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="of all inputs (a new one each time)")
    parser.add_argument(
        "--guided",
        action="store_true",
        help="let libFuzzer keep inputs that reach new code and change them further, in build/fuzz-corpus",
    )
    parser.add_argument(
        "--target", action="append", choices=names, metavar="NAME", help=f"only this one, or these: {', '.join(names)}"
    )
    options = parser.parse_args()
    options.targets = _named(options.target or names)
    return options


def _named(names: Sequence[str]) -> list[Target]:
    return [target for target in TARGETS if target.name in names]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
