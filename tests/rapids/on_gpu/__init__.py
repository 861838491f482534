# SPDX-License-Identifier: Apache-2.0
"""The RAPIDS Accelerator on a GPU beside Updraft: `make test-rapids-gpu`."""
