# SPDX-License-Identifier: Apache-2.0
"""The dashboards' queries, asked of a real Prometheus while a real job runs."""
