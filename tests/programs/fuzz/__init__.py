# SPDX-License-Identifier: Apache-2.0
"""`make fuzz`: hostile bytes against everything that reads a client's, a worker's or a stranger's."""
