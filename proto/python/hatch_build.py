# SPDX-License-Identifier: Apache-2.0
"""Generates the protobuf messages of proto/updraft/v1 into src/updraft/v1 when the distribution is built."""

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MESSAGES = "updraft/v1"


class ProtobufBuildHook(BuildHookInterface):
    """Runs protoc, as packaged in grpcio-tools, before every build and editable install."""

    PLUGIN_NAME = "protobuf"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate `*_pb2.py` and `*_pb2.pyi`; raises RuntimeError when protoc refuses a file."""
        import grpc_tools
        from grpc_tools import protoc

        package = Path(self.root)
        # A source distribution has the files inside; in the repository they lie beside this folder.
        protos = package if (package / _MESSAGES).is_dir() else package.parent
        sources = sorted(protos.glob(f"{_MESSAGES}/*.proto"))
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        messages = package / "src" / _MESSAGES
        messages.mkdir(parents=True, exist_ok=True)
        # Inside of what linters leave out: they may be at work.
        with tempfile.TemporaryDirectory(prefix=".generated-", dir=messages) as generated:
            outputs = [f"--{kind}_out={generated}" for kind in ("python", "pyi")]
            arguments = ["protoc", f"-I{protos}", f"-I{well_known}", *outputs]
            if protoc.main([*arguments, *map(str, sources)]) != 0:
                raise RuntimeError(f"protoc failed on {', '.join(source.name for source in sources)}")
            (Path(generated) / _MESSAGES / "__init__.py").write_text(
                '# SPDX-License-Identifier: Apache-2.0\n"""Messages generated from proto/updraft/v1."""\n'
            )
            for file in Path(generated).glob(f"{_MESSAGES}/*"):
                _put(file, messages / file.name)


def _put(file: Path, target: Path) -> None:
    """Replace the target as a whole, and only by something else: processes of another environment may be reading it."""
    if not target.exists() or target.read_bytes() != file.read_bytes():
        file.replace(target)
