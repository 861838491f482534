# SPDX-License-Identifier: Apache-2.0
"""Where encoded bytes go: `sink` defines what every sink is, `location` which paths may be written."""
