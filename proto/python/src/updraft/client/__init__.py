# SPDX-License-Identifier: Apache-2.0
"""Call Updraft from Python without Spark: write a file through a writer."""
