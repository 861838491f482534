# SPDX-License-Identifier: Apache-2.0
"""`make audit`: its findings, with bills and a service with OSV's API that are made for a test."""
