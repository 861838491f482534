# SPDX-License-Identifier: Apache-2.0
"""Makes `updraft-server serve --help` say what a value is (ADDRESS, SECONDS, BYTES) rather than its Python type."""

import argparse
import re
from typing import Any

from pydantic.fields import FieldInfo

from updraft_server.settings import ServeSettings

_EXAMPLES = """examples:
  updraft-server serve --workers 4
  updraft-server serve --functions my_package.functions --listen-unix /run/updraft/pool.sock
  updraft-server serve --allow-session-functions --listen 0.0.0.0:8815 --token-file tokens \\
      --tls-certificate-file tls.crt --tls-key-file tls.key
"""

# argparse shows what a setting without a plain default has: nothing that a person could use.
_MEANINGLESS_DEFAULT = re.compile(r" ?\(default: (None|\(\))\)| ?\(default factory: .*\)")


def explain_serve(parser: argparse.ArgumentParser) -> None:
    """Rewrite the help of the subcommand `serve` of `parser`."""
    serve = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices[
        "serve"
    ]
    serve.usage = "updraft-server serve [options]"
    serve.epilog = _EXAMPLES
    serve.formatter_class = argparse.RawDescriptionHelpFormatter
    for action in serve._actions:
        field = ServeSettings.model_fields.get(action.dest.rpartition(".")[2])
        if field is not None:
            _explain(action, field)


def _explain(action: argparse.Action, field: FieldInfo) -> None:
    if action.nargs != 0 and not action.choices:
        action.metavar = action.metavar if str(action.metavar).startswith("{") else _metavar(action.dest, field)
    action.help = _MEANINGLESS_DEFAULT.sub("", str(action.help))


def _metavar(name: str, field: FieldInfo) -> str:
    extra: Any = field.json_schema_extra
    unit = str(extra["unit"])
    if unit:
        return unit.upper()
    return "ADDRESS" if name.endswith("listen") else "PATH"
