# SPDX-License-Identifier: Apache-2.0
"""Where encoded bytes go: `sink` is what all of them are, `location` says what may be written at all."""
