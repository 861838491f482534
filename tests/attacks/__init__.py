# SPDX-License-Identifier: Apache-2.0
"""What a function may try against its neighbours and its pool, and what a client may try from outside."""
