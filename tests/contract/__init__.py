# SPDX-License-Identifier: Apache-2.0
"""The wire: what proto/README.md promises, asked of a real pool by clients that share no code with it."""
