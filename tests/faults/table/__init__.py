# SPDX-License-Identifier: Apache-2.0
"""Table of named faults (`make faults`): what each client sees of them, and what becomes of the pool."""
