# SPDX-License-Identifier: Apache-2.0
"""Places and turns: which exchange gets the next worker."""
