# SPDX-License-Identifier: Apache-2.0
"""Commands of the README, run as a user runs them: by make, from the repository's root."""
