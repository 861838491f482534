# SPDX-License-Identifier: Apache-2.0
"""Messages between a call and its worker."""
