# SPDX-License-Identifier: Apache-2.0
"""UDFs on a pool against every configuration of stock PySpark."""
