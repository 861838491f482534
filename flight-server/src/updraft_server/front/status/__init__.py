# SPDX-License-Identifier: Apache-2.0
"""Status of the pool: `report` samples it every two seconds, and `page` shows the last sample.

The page is served next to /metrics (`updraft.service.telemetry`), from a thread that reads the last report and never
waits for the front's loop.
"""
