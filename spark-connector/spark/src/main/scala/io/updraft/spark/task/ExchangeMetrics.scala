// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.{SparkContext, TaskContext}

import io.updraft.client.TaskExchange
import io.updraft.proto.v1.Report

/** Metrics of one operator: the stock Python metrics under their stock names, and the metrics of
  * the exchange.
  */
final class ExchangeMetrics(val all: Map[String, SQLMetric]) extends Serializable {

  def opened(): Unit = all("updraftExchanges") += 1

  /** Record a batch, and the number of rows for which the functions are called. */
  def sent(calls: Int): Unit = {
    all("updraftBatchesSent") += 1
    all.get(ExchangeMetrics.Calls).foreach(_ += calls)
  }

  def waited(nanoseconds: Long): Unit = all("updraftWaitTime") += nanoseconds

  def received(rows: Long): Unit = all("pythonNumRowsReceived") += rows

  /** Record the totals of an exchange that has ended, whether it succeeded or failed. */
  def closed(exchange: TaskExchange): Unit = {
    all("updraftHelpers") += exchange.helpers()
    all("updraftReplays") += exchange.replays()
    all("pythonDataSent") += exchange.bytesSent()
    all("pythonDataReceived") += exchange.bytesReceived()
    all("updraftSharedData") += exchange.sharedBytes()
  }

  /** Record the pool's own measurements of a finished exchange. */
  def reported(report: Report, context: TaskContext): Unit = {
    all("pythonBootTime") += report.getBootMilliseconds
    all("pythonInitTime") += report.getInitMilliseconds
    all("pythonTotalTime") += report.getTotalMilliseconds
    // Spark has this metric since 4.2.
    all.get("pythonProcessingTime").foreach(_ += report.getProcessingMilliseconds)
    SparkInternals.addSpilled(
      context,
      report.getMemorySpilledBytes,
      report.getDiskSpilledBytes
    )
  }
}

object ExchangeMetrics {
  private val Calls = "updraftCalls"

  /** Create the metrics of an operator that calls its functions once for each value. */
  def withCalls(context: SparkContext): ExchangeMetrics = new ExchangeMetrics(
    create(context).all +
      (Calls -> SQLMetrics.createMetric(context, "rows that the functions were called for"))
  )

  def create(context: SparkContext): ExchangeMetrics = new ExchangeMetrics(
    SparkInternals.pythonMetrics(context) ++ Map(
      "updraftExchanges" -> SQLMetrics.createMetric(context, "exchanges with the pool"),
      "updraftBatchesSent" -> SQLMetrics.createMetric(context, "batches sent to the pool"),
      "updraftHelpers" -> SQLMetrics
        .createMetric(context, "helpers of tasks that waited for the pool"),
      "updraftReplays" -> SQLMetrics.createMetric(context, "replays on another worker"),
      "updraftSharedData" -> SQLMetrics
        .createSizeMetric(context, "data that passed through shared memory"),
      "updraftWaitTime" -> SQLMetrics.createNanoTimingMetric(
        context,
        "time that tasks waited for the pool"
      )
    )
  )
}
