# SPDX-License-Identifier: Apache-2.0
"""The status page as a person sees it: `make test-browser`."""
