# SPDX-License-Identifier: Apache-2.0
"""`updraft.spark`: a pool and a writer as children of a program, as notebooks have them."""
