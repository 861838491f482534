# SPDX-License-Identifier: Apache-2.0
"""RAPIDS Accelerator for Spark beside Updraft, in one session: `make test-rapids`."""
