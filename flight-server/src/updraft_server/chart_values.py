# SPDX-License-Identifier: Apache-2.0
"""Values of the Helm chart that configure a pool, below `pools.NAME`. `make docs` writes the chart's list from here."""

from updraft.service.setting_names import camel_case

# This list includes limits of workers, although the front enforces most of them: a worker could lift its own limits.
WORKERS_SETTINGS = (
    "fresh_workers",
    "idle_worker_seconds",
    "max_exchanges_per_worker",
    "load_timeout_seconds",
    "model_memory_bytes",
    "profile",
    "restricted_functions",
    "worker_memory_bytes",
    "worker_processes",
    "worker_scratch_bytes",
    "worker_file_bytes",
    "worker_descriptors",
    "output_lines_per_second",
    "batch_timeout_seconds",
    "batch_cpu_seconds",
    "worker_silence_seconds",
    "writable_paths",
    "hidden_paths",
    "require",
)
"""Settings under `workers.settings`. All other settings without a value of their own are under `front.settings`."""

OWN_VALUES = {
    "drain_timeout_seconds": "drainTimeoutSeconds",
    "workers": "workers.count",
    "functions": "workers.functions.modules",
    "session_functions": "workers.sessionFunctions",
    "signers_file": "front.signers",
}
"""Settings that have a value of their own."""


def value_of(setting: str) -> str:
    """Return the value that sets a setting of a pool, as a path below `pools.NAME`."""
    half = "workers" if setting in WORKERS_SETTINGS else "front"
    return OWN_VALUES.get(setting) or f"{half}.settings.{camel_case(setting)}"
