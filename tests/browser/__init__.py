# SPDX-License-Identifier: Apache-2.0
"""Status page and documentation site as a person sees them: `make test-browser`."""
