# SPDX-License-Identifier: Apache-2.0
"""The demo: it needs the pool, the connector and the example, and proves that they work together, as a test would."""
