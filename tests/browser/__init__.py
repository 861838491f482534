# SPDX-License-Identifier: Apache-2.0
"""The status page and the documentation site as a person sees them: `make test-browser`."""
