# SPDX-License-Identifier: Apache-2.0
"""`make fuzz`: hostile bytes for everything that reads input from a client, a worker or a stranger."""
