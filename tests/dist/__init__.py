# SPDX-License-Identifier: Apache-2.0
"""Files that `make dist` built, installed and used as users do: without the checkout."""
