# SPDX-License-Identifier: Apache-2.0
"""What `make dist` built, installed and used as its users do: without the checkout."""
