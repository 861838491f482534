# SPDX-License-Identifier: Apache-2.0
"""The images that `make images` has built, as whoever pulls them sees them."""
