# SPDX-License-Identifier: Apache-2.0
"""Code that both services share: listeners, security, health, lifecycle, settings, logs, metrics and traces.

It is installed with `updraft-core[service]`; the contract and the client do not need it.
"""
