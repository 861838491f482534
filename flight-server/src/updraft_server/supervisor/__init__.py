# SPDX-License-Identifier: Apache-2.0
"""Supervisor: starts, watches and replaces front and zygote. Imports `ipc` and `linux`, never what it watches."""
