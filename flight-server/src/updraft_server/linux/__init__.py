# SPDX-License-Identifier: Apache-2.0
"""What Linux offers and the standard library does not wrap. Imports nothing of Updraft."""
