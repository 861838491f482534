# SPDX-License-Identifier: Apache-2.0
"""Start-up of the command `updraft`: a user waits for each module that it imports."""

import subprocess
import sys


def test_the_command_starts_without_pandas() -> None:
    imported = "import sys, updraft_cli.main; print('pandas' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", imported], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
