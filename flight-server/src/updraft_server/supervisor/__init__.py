# SPDX-License-Identifier: Apache-2.0
"""Supervisor: starts, watches and replaces front and zygote. It imports neither the front nor the zygote."""
