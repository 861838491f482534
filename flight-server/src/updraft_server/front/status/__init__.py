# SPDX-License-Identifier: Apache-2.0
"""The pool at a glance: `sampler` looks every two seconds, `report` is what it saw, `page` shows it.

Served beside /metrics (`updraft.service.telemetry`), from a thread that reads the last report and never asks the
front's loop.
"""
