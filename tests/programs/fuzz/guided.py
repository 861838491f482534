# SPDX-License-Identifier: Apache-2.0
"""One target of `make fuzz` under libFuzzer, which keeps inputs that reach new code and changes these inputs further.

Each target runs in its own process, which libFuzzer ends. `python -m tests.programs.fuzz --guided` starts all
processes.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

_SEEDS = 64
_MOST_BYTES = 1 << 16
_LENGTH_BYTES = 4
# Time limit of libFuzzer itself for a reader that never returns, in addition to the limits of the campaign.
_HANG_SECONDS = 60
_MOST_MEBIBYTES = 4096


def framed(pieces: list[bytes]) -> bytes:
    """Join pieces into one input for libFuzzer. Each piece except the last has its length as a prefix."""
    return b"".join(len(piece).to_bytes(_LENGTH_BYTES, "little") + piece for piece in pieces[:-1]) + pieces[-1]


def unframed(data: bytes, count: int) -> list[bytes]:
    """Split any bytes into `count` pieces: the inverse of `framed`."""
    pieces = []
    for _ in range(count - 1):
        length = int.from_bytes(data[:_LENGTH_BYTES], "little")
        data = data[_LENGTH_BYTES:]
        pieces.append(data[:length])
        data = data[length:]
    return [*pieces, data]


def guide(name: str, seed: int, seconds: float, corpus: Path) -> tuple[str, bool]:
    """Fuzz a target in a child process; return a summary, and whether there was a finding."""
    command = [sys.executable, "-m", "tests.programs.fuzz.guided", name, str(seed), f"{seconds:.0f}", str(corpus)]
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    said = ended.stdout + ended.stderr
    edges, runs = re.findall(r"cov: (\d+)", said), re.findall(r"number_of_executed_units: (\d+)", said)
    if ended.returncode != 0:
        return f"{name}: {said.strip()[-2000:]}", True
    return f"{name}: {int(runs[-1]):,} inputs, {int(edges[-1]):,} edges, {len(list(corpus.iterdir()))} kept", False


def main() -> None:
    """Fuzz the target in the arguments until libFuzzer ends the process; exit with 1 after a finding."""
    name, seed, seconds, corpus = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    import atheris

    # Import the readers here, because libFuzzer measures the coverage of modules imported from here on.
    with atheris.instrument_imports(
        include=["updraft", "updraft_server", "updraft_writer"], enable_loader_override=False
    ):
        from tests.programs.fuzz.__main__ import TARGETS, Finding, read, save

    target = next(target for target in TARGETS if target.name == name)
    count = len(target.make(random.Random(seed)))
    corpus.mkdir(parents=True, exist_ok=True)
    for index in range(_SEEDS):
        seeded = framed(target.make(random.Random(f"{seed} {name} {index}")))
        (corpus / f"seed-{index}").write_bytes(seeded[:_MOST_BYTES])

    def one(data: bytes) -> None:
        pieces = unframed(data, count)
        try:
            read(target, pieces)
        except Finding as finding:
            sys.stdout.write(
                f"finding: {save(target, pieces, f'guided-{abs(hash(data)):x}', str(finding))}: {finding}\n"
            )
            sys.stdout.flush()
            os._exit(1)

    options = [
        f"-max_total_time={seconds}",
        f"-max_len={_MOST_BYTES}",
        f"-timeout={_HANG_SECONDS}",
        f"-rss_limit_mb={_MOST_MEBIBYTES}",
        f"-artifact_prefix={corpus.parent}/",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
