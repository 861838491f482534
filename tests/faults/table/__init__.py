# SPDX-License-Identifier: Apache-2.0
"""`make faults`: a table of named faults, what each client sees of them, and what becomes of the pool."""
