# SPDX-License-Identifier: Apache-2.0
"""Images that `make images` has built, as a user who pulls them sees them."""
