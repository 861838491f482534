# SPDX-License-Identifier: Apache-2.0
"""Linux features that the standard library does not wrap. Imports nothing of Updraft."""
