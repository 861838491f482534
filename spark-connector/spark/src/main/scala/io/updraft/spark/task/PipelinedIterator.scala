// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import java.util.ArrayDeque

import org.apache.spark.TaskContext
import org.apache.spark.sql.updraft.{InputFiles, SparkInternals, TaskKills, WorkerLogs}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.client.{Reply, TaskExchange}
import io.updraft.spark.task.input.{Request, RequestSource, RetainedRows}
import io.updraft.spark.task.output.{ResultBatch, Results}
import io.updraft.spark.trace.TaskSpan

/** Iterator over the results of one task. It sends requests until the window is full and returns
  * the oldest reply. It waits only if it can neither send a request nor return a reply.
  *
  * Runs only on the task's thread. The first request opens the exchange. So an empty partition
  * costs the pool nothing, unless the function may return rows without input. The exchange is
  * cancelled as soon as the task ends or is killed. A batch is valid until the next batch is
  * requested.
  */
final class PipelinedIterator(
    source: RequestSource,
    results: Results,
    open: () => TaskExchange,
    files: InputFiles,
    failures: Failures,
    logs: WorkerLogs,
    metrics: ExchangeMetrics,
    span: TaskSpan,
    context: TaskContext
) extends Iterator[ColumnarBatch]
    with AutoCloseable {
  private[this] val kept = new ArrayDeque[RetainedRows]()
  @volatile private[this] var exchange: TaskExchange = _
  private[this] var phase = Phase.Sending
  private[this] val pace = new BatchPace
  private[this] var waitedForReply = 0L
  private[this] var batches: Iterator[ResultBatch] = Iterator.empty
  private[this] var ready: ColumnarBatch = _
  private[this] var emitted: ColumnarBatch = _

  context.addTaskCompletionListener[Unit](_ => close())
  TaskKills.onKill(context)(cancel)

  override def hasNext: Boolean = {
    if (ready == null && phase != Phase.Ended) ready = failures.translate(advance())
    // Release the last batch now, not when the task ends: a coalesced task has one such iterator
    // for each partition.
    if (ready == null) releaseEmitted()
    ready != null
  }

  override def next(): ColumnarBatch = {
    if (!hasNext) throw new NoSuchElementException("no batch left")
    releaseEmitted()
    emitted = ready
    ready = null
    emitted
  }

  /** Return the next batch of results; null at the end. */
  private def advance(): ColumnarBatch = {
    var result: ColumnarBatch = null
    while (result == null && phase != Phase.Ended) {
      SparkInternals.throwIfKilled(context)
      fillWindow()
      if (exchange == null) {
        phase = Phase.Ended
      } else {
        if (!batches.hasNext) handle(nextReply())
        if (batches.hasNext) result = show(batches.next())
      }
    }
    result
  }

  private def fillWindow(): Unit =
    while (phase == Phase.Sending && (exchange == null || exchange.hasRoom))
      source.next() match {
        case Some(request) => send(request)
        case None => finishSending()
      }

  private def send(request: Request): Unit = {
    kept.add(request.kept)
    if (exchange == null) {
      try start()
      catch {
        case e: Throwable =>
          request.batch.close()
          throw e
      }
    }
    exchange.send(request.batch, request.batch.getLength, request.groups)
    metrics.sent(request.kept.calls)
  }

  private def start(): Unit = {
    span.begin()
    exchange = open()
    metrics.opened()
    // If the task was killed before the exchange was opened, nothing has cancelled the exchange
    // yet.
    if (context.isInterrupted()) exchange.cancel("the task was killed")
  }

  private def finishSending(): Unit = {
    phase = Phase.Receiving
    if (exchange == null && results.needNoInput) start()
    if (exchange != null) exchange.finishSending()
  }

  private def nextReply(): Reply = {
    val waiting = exchange.poll()
    if (waiting != null) {
      waiting
    } else {
      val start = System.nanoTime()
      try exchange.take()
      finally {
        val waited = System.nanoTime() - start
        metrics.waited(waited)
        waitedForReply += waited
      }
    }
  }

  private def handle(reply: Reply): Unit = reply.kind() match {
    case Reply.Kind.ROOM =>
    case Reply.Kind.LOG => reply.lines().forEach(line => logs.add(line))
    case Reply.Kind.END => end()
    case Reply.Kind.BATCH =>
      pace.answered(reply.rows(), waitedForReply)
      waitedForReply = 0L
      source.setMostRows(pace.mostRows(exchange.workers()))
      try batches = results.of(reply, kept, exchange.resultSchema())
      finally reply.batch().close()
  }

  private def show(batch: ResultBatch): ColumnarBatch = {
    metrics.received(batch.rows.toLong)
    files.show(batch.inputFile)
    new ColumnarBatch(batch.columns, batch.rows)
  }

  private def end(): Unit = {
    phase = Phase.Ended
    results.ended(kept)
    failures.report(exchange.report())
    metrics.reported(exchange.report(), context)
    closeExchange()
  }

  private def cancel(reason: String): Unit = {
    val running = exchange
    if (running != null) running.cancel(reason)
  }

  /** Release everything, once, however the task ends. */
  override def close(): Unit = {
    phase = Phase.Ended
    closeExchange()
    // End the span even if the exchange could not be opened.
    span.end()
    releaseEmitted()
    if (ready != null) ready.close()
    ready = null
    while (!kept.isEmpty) kept.poll().close()
    results.close()
    source.close()
  }

  private def closeExchange(): Unit = if (exchange != null) {
    logs.close()
    metrics.closed(exchange)
    span.end(
      "bytes_sent" -> exchange.bytesSent(),
      "bytes_received" -> exchange.bytesReceived()
    )
    exchange.close()
    exchange = null
  }

  private def releaseEmitted(): Unit = {
    if (emitted != null) emitted.close()
    emitted = null
  }
}

/** Phase of a task's exchange. */
private object Phase extends Enumeration {
  val Sending, Receiving, Ended = Value
}
