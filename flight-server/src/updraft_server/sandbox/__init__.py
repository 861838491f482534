# SPDX-License-Identifier: Apache-2.0
"""What a worker gives up before user code runs in it."""
