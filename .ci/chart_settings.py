# SPDX-License-Identifier: Apache-2.0
"""Writes the chart's settings.yaml: which settings of the services each place in its values takes; with --check it
only says whether the file is in step.

A setting of a pool belongs to the front, unless it is named here.
"""

import argparse
import sys
from pathlib import Path

import yaml

from updraft.service.settings import Settings
from updraft_server.settings import SeparateFrontSettings, SeparateWorkersSettings
from updraft_server.settings import ServeSettings as ServerSettings
from updraft_writer.settings import ServeSettings as WriterSettings

_FILE = Path(__file__).resolve().parents[1] / "deploy/helm/updraft/settings.yaml"
_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Written by `make docs`. Settings of the services in camel case, by the values that take them; under `containers`, by
# the containers that know them; under `chart`, those that the chart sets itself, and from what.
"""
# Limits of workers are here although the front enforces most of them: a worker could lift its own.
_WORKERS = (
    "fresh_workers",
    "extra_workers",
    "max_exchanges_per_worker",
    "load_timeout_seconds",
    "model_memory_bytes",
    "profile",
    "restricted_functions",
    "worker_memory_bytes",
    "worker_processes",
    "worker_threads",
    "worker_scratch_bytes",
    "worker_scratch_files",
    "worker_file_bytes",
    "worker_descriptors",
    "output_lines_per_second",
    "held_back_after_deaths",
    "batch_timeout_seconds",
    "batch_cpu_seconds",
    "worker_silence_seconds",
    "writable_paths",
    "hidden_paths",
    "require",
)
_CONTAINERS: dict[str, type[Settings]] = {
    "front": SeparateFrontSettings,
    "workers": SeparateWorkersSettings,
    "writer": WriterSettings,
}
_CHART = {
    "end_with_stdin": "nothing, since Kubernetes ends its pods by SIGTERM",
    "listen": "the component's port",
    "admin_listen": "the component's port",
    "metrics_listen": "the component's port",
    "token_file": "auth",
    "insecure_no_token": "auth.insecureNoToken",
    "tls_certificate_file": "tls",
    "tls_key_file": "tls",
    "tls_client_ca_file": "tls.clientCertificates",
    "drain_timeout_seconds": "drainTimeoutSeconds",
    "trace_endpoint": "tracing.endpoint",
    "runtime_directory": "its volumes",
    "front_directory": "its volumes",
    "workers": "workers.count",
    "functions": "workers.functions.modules",
    "session_functions": "workers.sessionFunctions",
    "signers_file": "front.signers",
    "root": "writer.roots",
}


def settings() -> str:
    """The file."""
    server = ServerSettings.model_fields.keys() - _CHART.keys()
    writer = WriterSettings.model_fields.keys() - _CHART.keys()
    places = {
        "common.settings": server & writer,
        "front.settings": server - set(_WORKERS),
        "workers.settings": _WORKERS,
        "writer.settings": writer,
    }
    content: dict[str, object] = {place: sorted(map(_camel_case, names)) for place, names in places.items()}
    content["containers"] = {
        name: sorted(map(_camel_case, taking.model_fields)) for name, taking in _CONTAINERS.items()
    }
    content["chart"] = {_camel_case(name): value for name, value in _CHART.items()}
    return _HEAD + yaml.safe_dump(content, sort_keys=False)


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def main() -> int:
    """0: done or in step; 1: out of step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the file is in step")
    if not parser.parse_args().check:
        _FILE.write_text(settings())
    elif _FILE.read_text() != settings():
        print(f"{_FILE.name} of the chart differs from the services' settings: run `make docs`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
