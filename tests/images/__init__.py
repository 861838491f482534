# SPDX-License-Identifier: Apache-2.0
"""The images that `make images` has built, read as whoever pulls them would."""
