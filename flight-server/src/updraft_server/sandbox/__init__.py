# SPDX-License-Identifier: Apache-2.0
"""Rights that a worker gives up before user code runs in it."""
