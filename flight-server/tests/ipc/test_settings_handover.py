# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

from updraft.service.service_settings import ServiceSettings
from updraft_server.ipc.settings_handover import hand_down, take_over
from updraft_server.settings import ServeSettings

PROPERTIES = [name for name, member in vars(ServiceSettings).items() if isinstance(member, property)]


def test_the_front_finds_every_setting_and_address_as_it_was_checked() -> None:
    settings = ServeSettings(
        listen="[::1]:1", admin_listen="", listen_unix=Path("/run/updraft.sock"), token_file=Path("tokens"), workers=3
    )
    handed = take_over(hand_down(settings))
    assert PROPERTIES
    for name in (*ServeSettings.model_fields, *PROPERTIES):
        assert getattr(handed, name) == getattr(settings, name), name


def test_a_front_starts_without_what_only_checks_settings() -> None:
    loaded = (
        "import updraft_server.front.process, sys; sys.exit(any(name.startswith('pydantic') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
