# SPDX-License-Identifier: Apache-2.0
"""Constants of the protocol that are not messages of `updraft.v1`."""

PROTOCOL_VERSION = 1
"""Version of the protocol (proto/README.md) that this release speaks, as a client and as a service."""

TENANT_HEADER = "x-updraft-tenant"
"""Request header with the tenant used for fair scheduling of a service's queue or quota."""

LOG_KEY_HEADER = "x-updraft-log-key"
"""Request header with a secret of the client, by which it may read output and profiles of its own calls."""

DATABEND_TENANT_HEADER = "x-databend-tenant"
"""Databend's request header with the tenant. It is used if neither the identity nor the call sets another."""

DATABEND_QUERY_HEADER = "x-databend-query-id"
"""Databend's request header with the id of its query, for logs."""
