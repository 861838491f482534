# SPDX-License-Identifier: Apache-2.0
"""`make audit`: third-party packages that ship with Updraft, their licenses, and their known vulnerabilities."""
