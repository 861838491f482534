# SPDX-License-Identifier: Apache-2.0
"""Status of the pool: `sampler` samples it every two seconds, `report` describes one sample, and `page` shows it.

The page is served next to /metrics (`updraft.service.telemetry`), from a thread that reads the last report and never
waits for the front's loop.
"""
