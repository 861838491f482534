# SPDX-License-Identifier: Apache-2.0
"""The contract between Updraft's services and their clients, in Python: messages, errors, Arrow bytes."""
