# SPDX-License-Identifier: Apache-2.0
"""Constants of the protocol that are not messages of `updraft.v1`."""

PROTOCOL_VERSION = 1
"""Version of the protocol (proto/README.md) that this release speaks, as a client and as a service."""

TENANT_HEADER = "x-updraft-tenant"
"""Request header with the tenant used for fair scheduling of a service's queue or quota."""

LOG_KEY_HEADER = "x-updraft-log-key"
"""Request header with a secret that lets the client read the output and profiles of its own calls."""

DATABEND_TENANT_HEADER = "x-databend-tenant"
"""Databend's request header with the tenant, used if neither the caller's identity nor TENANT_HEADER names a tenant."""

DATABEND_QUERY_HEADER = "x-databend-query-id"
"""Databend's request header with the id of its query, for logs."""
