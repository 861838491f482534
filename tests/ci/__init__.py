# SPDX-License-Identifier: Apache-2.0
"""What `make check` itself does: which stages run, and what its summary says."""
