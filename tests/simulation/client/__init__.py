# SPDX-License-Identifier: Apache-2.0
"""Models of the Java client's policy. Each file mirrors one class of spark-connector/client, method for method.

`traces` proves that the models decide as the Java classes do.
"""
