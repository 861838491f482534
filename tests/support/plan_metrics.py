# SPDX-License-Identifier: Apache-2.0
"""SQL metrics of an operator in an executed plan."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tests.support.spark import executed_plan


def metrics_of(frame: DataFrame, operator: str) -> dict[str, int]:
    """Return the metrics of the first operator with this name in an executed plan."""
    node = frame._jdf.queryExecution().executedPlan()
    pending = [node]
    while pending:
        node = pending.pop()
        if node.nodeName().startswith(operator):
            metrics, names = node.metrics(), node.metrics().keySet().iterator()
            found: dict[str, int] = {}
            while names.hasNext():
                name = names.next()
                found[name] = metrics.apply(name).value()
            return found
        if node.nodeName() == "AdaptiveSparkPlan":
            pending.append(node.executedPlan())
        if node.nodeName().endswith("QueryStage"):
            pending.append(node.plan())
        children = node.children()
        pending += [children.apply(index) for index in range(children.size())]
    raise AssertionError(f"no {operator} in {executed_plan(frame)}")
