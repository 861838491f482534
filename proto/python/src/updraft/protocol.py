# SPDX-License-Identifier: Apache-2.0
"""What both sides of the wire agree on beside the messages of `updraft.v1`."""

PROTOCOL_VERSION = 1
"""The version of proto/README.md that this release speaks, as a client and as a service."""

TENANT_HEADER = "x-updraft-tenant"
"""Request header: whose share of a service's queue or quota a call takes."""
