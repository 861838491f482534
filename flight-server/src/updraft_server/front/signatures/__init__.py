# SPDX-License-Identifier: Apache-2.0
"""Session functions that a driver has signed: whose signatures count, and for what."""
