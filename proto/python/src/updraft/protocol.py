# SPDX-License-Identifier: Apache-2.0
"""Constants of the protocol that are not messages of `updraft.v1`."""

PROTOCOL_VERSION = 1
"""Version of the protocol (proto/README.md) that this release speaks, as a client and as a service."""

TENANT_HEADER = "x-updraft-tenant"
"""Request header: tenant used for fair scheduling of a service's queue or quota."""
