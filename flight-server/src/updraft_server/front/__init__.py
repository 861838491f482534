# SPDX-License-Identifier: Apache-2.0
"""Front process, which clients reach: it holds the port and all secrets, and never parses Arrow or runs user code.

`process` wires the parts together and `service` answers Flight calls. For each exchange, `request` checks the command,
`signatures` verifies a session function, `artifacts` collects the files that the function needs, `queue` decides when
the exchange receives a worker, and `exchange` and `relay` carry its messages to the worker and back. `limits` ends
exchanges that exceed a limit, and `status` publishes health, metrics and the status page.
"""
