# SPDX-License-Identifier: Apache-2.0
"""Table of named faults (`make faults`): what each fault's client sees, and what becomes of the pool."""
