# SPDX-License-Identifier: Apache-2.0
"""Supervisor: starts, watches and replaces front and zygote. It imports `ipc` and `linux`, not what it watches."""
