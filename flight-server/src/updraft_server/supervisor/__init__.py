# SPDX-License-Identifier: Apache-2.0
"""Starts, watches and replaces the front and the zygote. Imports `ipc` and `linux`, never what it watches."""
