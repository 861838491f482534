# SPDX-License-Identifier: Apache-2.0
"""The process that clients reach: it holds the port and every secret, and neither parses Arrow nor runs user code.

`process` wires it up, `service` answers Flight, `request` checks what opens an exchange, `admission` queues it,
`artifacts` collects what its function needs, `exchange` and `relay` carry it to a worker and back.
"""
