# SPDX-License-Identifier: Apache-2.0
"""What the services share: listeners, security, health, lifecycle, settings, logs, metrics and traces.

Installed with `updraft-core[service]`; the contract and the client need none of it.
"""
