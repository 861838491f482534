# SPDX-License-Identifier: Apache-2.0
"""Generates the protobuf messages of proto/updraft/v1 into src/updraft/v1 when the distribution is built."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProtobufBuildHook(BuildHookInterface):
    """Runs protoc, as packaged in grpcio-tools, before every build and editable install."""

    PLUGIN_NAME = "protobuf"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate `*_pb2.py` and `*_pb2.pyi`; raises RuntimeError when protoc refuses a file."""
        import grpc_tools
        from grpc_tools import protoc

        package = Path(self.root)
        protos = package.parent
        output = package / "src"
        sources = sorted(protos.glob("updraft/v1/*.proto"))
        (output / "updraft/v1").mkdir(parents=True, exist_ok=True)
        (output / "updraft/v1/__init__.py").write_text(
            '# SPDX-License-Identifier: Apache-2.0\n"""Messages generated from proto/updraft/v1."""\n'
        )
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        arguments = ["protoc", f"-I{protos}", f"-I{well_known}", f"--python_out={output}", f"--pyi_out={output}"]
        if protoc.main([*arguments, *map(str, sources)]) != 0:
            raise RuntimeError(f"protoc failed on {', '.join(source.name for source in sources)}")
