# SPDX-License-Identifier: Apache-2.0
"""The dashboards' queries, run on a real Prometheus that watches a real job."""
