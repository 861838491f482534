# SPDX-License-Identifier: Apache-2.0
"""Barrier stages, whose tasks run at the same time and communicate with each other."""

from __future__ import annotations

from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from tests.workers.failures import failure
from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers


@scenario()
def barrier(spark: SparkSession) -> Any:
    def wait(part: Any) -> Any:
        context = BarrierTaskContext.get()
        context.barrier()
        yield context.partitionId(), sum(part)

    return numbers(spark, 10, 2).barrier().mapPartitions(wait).collect()


@scenario()
def barrier_several_times(spark: SparkSession) -> Any:
    def wait(part: Any) -> Any:
        context = BarrierTaskContext.get()
        for _ in range(5):
            context.barrier()
        return part

    return numbers(spark, 10, 2).barrier().mapPartitions(wait).collect()


@scenario()
def all_gather(spark: SparkSession) -> Any:
    def gather(part: Any) -> Any:
        context = BarrierTaskContext.get()
        yield context.allGather(f"from {context.partitionId()}: {sum(part)}")

    return numbers(spark, 10, 2).barrier().mapPartitions(gather).collect()


@scenario()
def task_infos(spark: SparkSession) -> Any:
    def infos(index: int, _: Any) -> Any:
        addresses = [info.address for info in BarrierTaskContext.get().getTaskInfos()]
        yield index, len(addresses), all(addresses)

    return numbers(spark, 10, 2).barrier().mapPartitionsWithIndex(infos).collect()


@scenario()
def exception_in_a_barrier_stage(spark: SparkSession) -> Any:
    def refuse(part: Any) -> Any:
        context = BarrierTaskContext.get()
        context.barrier()
        if context.partitionId() == 1:
            raise ValueError("a task of the stage")
        context.barrier()
        return part

    found = failure(lambda: numbers(spark, 10, 2).barrier().mapPartitions(refuse).collect())
    return [line for line in found["cause"] if "Error" in line]


@scenario()
def barrier_with_too_many_tasks(spark: SparkSession) -> Any:
    return failure(lambda: numbers(spark, 10, 5).barrier().mapPartitions(lambda part: part).collect())["class"]


@scenario()
def training(spark: SparkSession) -> Any:
    """After each step, average a model over the tasks."""

    def train(part: Any) -> Any:
        context, data, weight = BarrierTaskContext.get(), list(part), 0.0
        for _ in range(4):
            gradient = sum(weight - number for number in data) / len(data)
            parts = context.allGather(repr(weight - 0.5 * gradient))
            weight = sum(map(float, parts)) / len(parts)
        yield round(weight, 6)

    return numbers(spark, 100, 2).barrier().mapPartitions(train).collect()


@scenario()
def barrier_of_map_in_arrow(spark: SparkSession) -> Any:
    def wait(batches: Any) -> Any:
        BarrierTaskContext.get().barrier()
        yield from batches

    return sorted(row[0] for row in spark.range(0, 10, 1, 2).mapInArrow(wait, "id long", barrier=True).collect())
