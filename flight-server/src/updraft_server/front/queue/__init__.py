# SPDX-License-Identifier: Apache-2.0
"""Queue of exchanges: their places in it, and the turns that decide which exchange gets the next worker."""
