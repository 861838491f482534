# SPDX-License-Identifier: Apache-2.0
"""Count Updraft's settings on their reference pages, to keep the number of settings low.

Options are those of `updraft-server` and `updraft-writer`; an option of both counts once. Confs are those of the
connector. Chart values are those that values.yaml describes. Run `python .ci/count_settings.py`; it needs only the
files of the checkout.
"""

import re
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_OPTION = re.compile(r"^\| `(--[a-z-]+)` \|", re.MULTILINE)
_CONF = re.compile(r"^##+ `(spark\.[\w.]+)`$", re.MULTILINE)
_VALUE = re.compile(r"^ *# --\*? ", re.MULTILINE)


def counts(root: Path = _ROOT) -> dict[str, int]:
    """Return the number of settings of each kind in a checkout."""
    reference = root / "docs/reference"
    options = {
        option for page in ("server.md", "writer.md") for option in _OPTION.findall((reference / page).read_text())
    }
    return {
        "options": len(options),
        "confs": len(_CONF.findall((reference / "connector.md").read_text())),
        "chart values": len(_VALUE.findall((root / "deploy/helm/updraft/values.yaml").read_text())),
    }


def main() -> int:
    """Print the counts and their sum."""
    found = counts()
    for kind, number in found.items():
        print(f"{number:4} {kind}")
    print(f"{sum(found.values()):4} settings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
