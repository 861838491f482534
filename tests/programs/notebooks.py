# SPDX-License-Identifier: Apache-2.0
"""`make notebooks`: run the notebooks of the documentation, and save the outputs in the notebooks."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import nbformat

from tests.notebooks.notebook import notebooks, run


def main() -> None:
    """Run all notebooks, or only those named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="names of notebooks, without .ipynb; default: all")
    names = parser.parse_args().names
    for path in notebooks():
        if names and path.stem not in names:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            nbformat.write(run(path, Path(directory)), path)
        print(f"{path.stem:20} {time.monotonic() - started:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
