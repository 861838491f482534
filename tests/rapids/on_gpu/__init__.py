# SPDX-License-Identifier: Apache-2.0
"""RAPIDS Accelerator on a GPU beside Updraft: `make test-rapids-gpu`."""
