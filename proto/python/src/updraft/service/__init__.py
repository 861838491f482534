# SPDX-License-Identifier: Apache-2.0
"""Code that both services share: listeners, security, health, lifecycle, settings, logs, metrics and traces.

Install it with `updraft-core[service]`; neither the contract nor the client needs this package.
"""
