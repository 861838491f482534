# SPDX-License-Identifier: Apache-2.0
"""What both services of Updraft share because it is the contract between them and their clients."""
