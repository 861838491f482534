# SPDX-License-Identifier: Apache-2.0
"""Writer of the chart's settings.yaml, which lists the service settings that each place in the chart's values takes.

With --check it only reports whether the file is up to date.

`updraft_server.chart_values` decides whether a pool's front or its workers take a setting.
"""

import argparse
import sys
from pathlib import Path

import yaml

from updraft.service.setting_names import camel_case
from updraft.service.settings import Settings
from updraft_server.chart_values import OWN_VALUES, WORKERS_SETTINGS
from updraft_server.settings import SeparateFrontSettings, SeparateWorkersSettings
from updraft_server.settings import ServeSettings as ServerSettings
from updraft_writer.settings import ServeSettings as WriterSettings

_FILE = Path(__file__).resolve().parents[1] / "deploy/helm/updraft/settings.yaml"
_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Written by `make docs`. Settings of the services in camel case, by the values that take them; under `containers`, by
# the containers that know them; under `chart`, those that the chart sets itself, and from what.
"""
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
    "trace_endpoint": "tracing.endpoint",
    "runtime_directory": "its volumes",
    "front_directory": "its volumes",
    "root": "writer.roots",
    "shared_memory": "its pods, whose /dev/shm only the pool uses",
    **OWN_VALUES,
}


def settings() -> str:
    """Return the text of settings.yaml."""
    server = ServerSettings.model_fields.keys() - _CHART.keys()
    writer = WriterSettings.model_fields.keys() - _CHART.keys()
    places = {
        "common.settings": server & writer,
        "front.settings": server - set(WORKERS_SETTINGS),
        "workers.settings": WORKERS_SETTINGS,
        "writer.settings": writer,
    }
    content: dict[str, object] = {place: sorted(map(camel_case, names)) for place, names in places.items()}
    content["containers"] = {name: sorted(map(camel_case, taking.model_fields)) for name, taking in _CONTAINERS.items()}
    content["chart"] = {camel_case(name): value for name, value in _CHART.items()}
    return _HEAD + yaml.safe_dump(content, sort_keys=False)


def main() -> int:
    """Write or check the file; return 1 if it is out of step."""
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
