# SPDX-License-Identifier: Apache-2.0
"""The guides for places where Spark runs, typed as they are written, and a job on what they have started."""
