# SPDX-License-Identifier: Apache-2.0
"""Writer of the schemas of the custom resources in the chart and the examples, from releases of their operators.

A release is a Go module, which the Go proxy serves as an archive. The archive must match the digest in this file. The
schemas are committed, so that the chart's tests need no network.
"""

import hashlib
import io
import json
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_WRITTEN = Path(__file__).resolve().parents[1] / "tests/chart/crds"
_PROXY = "https://proxy.golang.org"
_KEPT_OPEN = "x-kubernetes-preserve-unknown-fields"


@dataclass(frozen=True)
class _Release:
    module: str
    version: str
    sha256: str
    definitions: tuple[str, ...]


_RELEASES = (
    _Release(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "0bdb88ed823d0f2e86cf909638439b6ad1da744a228172c7411d9987527dc5d1",
        (
            "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        ),
    ),
    _Release(
        "github.com/kedacore/keda/v2",
        "v2.21.0",
        "74b59fe16144250748b716d6dc8789dee52d26164daab732145bed60456013a4",
        ("config/crd/bases/keda.sh_scaledobjects.yaml",),
    ),
    _Release(
        "github.com/cert-manager/cert-manager",
        "v1.21.2",
        "cfaf1fb53965a5fd60490861387b7dbf34cd40987c878a4f1e247f836eef4782",
        ("deploy/crds/cert-manager.io_certificates.yaml",),
    ),
    _Release(
        "sigs.k8s.io/gateway-api",
        "v1.6.3",
        "7c5d0a931d6ffb3e08ac4d5318969faaa6acf25a40ad13cc5978c22117e9b64b",
        (
            "config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
            "config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml",
            "config/crd/standard/gateway.networking.k8s.io_tlsroutes.yaml",
        ),
    ),
    _Release(
        "github.com/kubeflow/spark-operator/v2",
        "v2.3.0",
        "13d5fdaa278e372798205582e22fd8083dbdc817f1b1e8e7d36fa84a7d9703b3",
        ("config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml",),
    ),
)


def _archive(release: _Release) -> zipfile.ZipFile:
    address = f"{_PROXY}/{release.module}/@v/{release.version}.zip"
    with urllib.request.urlopen(address, timeout=300) as answer:  # noqa: S310 - https, as above
        content = answer.read()
    digest = hashlib.sha256(content).hexdigest()
    if digest != release.sha256:
        raise ValueError(f"{address} has the digest {digest}, not {release.sha256}")
    return zipfile.ZipFile(io.BytesIO(content))


def _closed(schema: Any) -> Any:
    """Return a structural schema as JSON Schema, in which fields that the definition lacks are errors."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _closed(value) for key, value in schema.items() if key not in ("description", "format")}
    # If one of these keys contains a map, the key is the name of a field, and the map is its schema: keep it.
    kept |= {key: schema[key] for key in ("description", "format") if isinstance(schema.get(key), dict)}
    if isinstance(schema.get("pattern"), str):
        # Go accepts the flag (?i) anywhere in a pattern.
        kept["pattern"] = schema["pattern"].replace("^(?i)", "(?i)^")
    if schema.get("x-kubernetes-int-or-string"):
        kept.pop("type", None)
        kept["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if isinstance(schema.get("properties"), dict) and not schema.get(_KEPT_OPEN):
        kept.setdefault("additionalProperties", False)
    return {key: value for key, value in kept.items() if not key.startswith("x-kubernetes-")}


def _write(definition: Any, source: str) -> None:
    group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
    for version in (version for version in definition["spec"]["versions"] if version["storage"]):
        schema = _closed(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        named = {"$comment": f"SPDX-License-Identifier: Apache-2.0; from {source}", **schema}
        path = _WRITTEN / f"{group}_{version['name']}_{kind}.json"
        path.write_text(json.dumps(named, separators=(",", ":"), sort_keys=True) + "\n")


def main() -> None:
    """Fetch the releases and write the schemas."""
    _WRITTEN.mkdir(exist_ok=True)
    for release in _RELEASES:
        archive = _archive(release)
        for name in release.definitions:
            definition = yaml.safe_load(archive.read(f"{release.module}@{release.version}/{name}"))
            _write(definition, f"{release.module} {release.version}")


if __name__ == "__main__":
    main()
