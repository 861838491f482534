// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import org.apache.arrow.vector.ipc.message.ArrowRecordBatch
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.datasources.OutputWriter
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.client.{Exchange, FileExchange}
import io.updraft.proto.v1.{Receipt, WriteCommand}
import io.updraft.spark.columns.{BatchCut, BatchLimits, BatchSize, ColumnSet}
import io.updraft.spark.config.WriteSettings
import io.updraft.spark.task.TaskIdentities
import io.updraft.spark.trace.{TaskSpan, TaskSpans}

/** File that Spark writes row by row: rows become Arrow batches, batches go to the writer, and
  * `close` returns once the writer's receipt has arrived. Rows inside a batch ([[BatchRow]]) are
  * not copied one by one: the file records their range and copies the whole range at once. Spark
  * also closes files that it abandons; abandoned files are not published.
  *
  * @param written
  *   the file in this executor's storage
  * @param watch
  *   called with each batch before it is sent
  */
final class RowFile private (
    override val path: String,
    override val command: WriteCommand,
    columns: ColumnSet,
    file: FileExchange,
    written: WrittenFile,
    batchBytes: Long,
    watch: ArrowRecordBatch => Unit,
    metrics: Seq[WriteMetrics],
    failures: WriteFailures,
    span: TaskSpan,
    task: TaskFiles
) extends OutputWriter
    with TaskFile {
  private[this] val released = new AtomicBoolean
  private[this] val lookBytes = batchBytes / RowFile.LooksPerBatch
  private[this] val cut = new BatchCut(BatchLimits.of(batchBytes))
  private[this] var rows = 0
  private[this] var unseenBytes = 0L
  private[this] var sent = 0L
  private[this] var proof: Option[Receipt] = None
  // Rows of a batch that belong to this file and are not copied yet.
  private[this] var batch: ColumnarBatch = _
  private[this] var from = 0
  private[this] var until = 0

  override def receipt: Option[Receipt] = proof

  /** Return the bytes of all rows so far, in batches. */
  def rowBytes: Long = {
    copyKept()
    columns.measure()
    sent + columns.byteCount(_ => true)
  }

  override def write(row: InternalRow): Unit = row match {
    case row: BatchRow => keep(row)
    case _ => copy(row)
  }

  private def keep(row: BatchRow): Unit = {
    if (batch == null) {
      batch = row.batch
      from = row.index
    }
    until = row.index + 1
    // The producer may reuse this batch when Spark requests the next row.
    if (row.isLast) copyKept()
  }

  private def copyKept(): Unit = if (batch != null) {
    while (from < until) {
      val count = math.min(cut.room(rows), until - from)
      columns.append(batch, from, count)
      from += count
      rows += count
      columns.measure()
      val bytes = columns.byteCount(_ => true)
      if (cut.endsAt(rows, BatchSize(bytes, bytes))) {
        flush()
        cut.advance()
      }
    }
    batch = null
  }

  private def copy(row: InternalRow): Unit = {
    columns.append(row)
    rows += 1
    unseenBytes += sizeOf(row)
    if (unseenBytes >= lookBytes) {
      unseenBytes = 0
      columns.measure()
      if (columns.byteCount(_ => true) >= batchBytes) flush()
    }
  }

  /** Return the row's size, which determines when to measure the columns again. */
  private def sizeOf(row: InternalRow): Long = row match {
    case unsafe: UnsafeRow => unsafe.getSizeInBytes.toLong
    case _ => lookBytes / RowFile.UnknownRowsPerLook
  }

  private def flush(): Unit = if (rows > 0) {
    val filled = columns.finish()
    val batch =
      try ColumnSet.recordBatch(rows, filled)
      finally filled.foreach(_.close())
    rows = 0
    try watch(batch)
    catch {
      case NonFatal(e) =>
        batch.close()
        throw e
    }
    sent += batch.computeBodyLength()
    failures.translate(file.send(batch))
  }

  override def close(): Unit = if (!released.get) {
    try task.failed match {
        case Some(error) => file.abort(error.toString)
        case None => finish()
      }
    finally release()
  }

  private def finish(): Unit = {
    copyKept()
    flush()
    val receipt = failures.translate(file.finish())
    written.complete(receipt)
    proof = Some(receipt)
    metrics.foreach(_.finished(receipt))
  }

  override def cancel(reason: String): Unit = file.cancel(reason)

  override def release(): Unit = if (released.compareAndSet(false, true)) {
    task.remove(this)
    metrics.foreach(_.closed(file.waitedNanos()))
    span.end("wait_nanoseconds" -> file.waitedNanos())
    columns.close()
    file.close()
    if (proof.isEmpty) written.abandon()
  }
}

object RowFile {

  /** Number of size checks while a batch grows. */
  private val LooksPerBatch = 16

  /** Rows of unknown size between two checks. */
  private val UnknownRowsPerLook = 16

  def open(
      path: String,
      layout: FileColumns,
      settings: WriteSettings,
      command: WriteCommand,
      metrics: WriteMetrics,
      conf: Configuration,
      context: TaskContext,
      watch: ArrowRecordBatch => Unit = _ => ()
  ): RowFile = {
    val target = new Path(path)
    val columns = new ColumnSet(layout.types, layout.arrow, largeVarTypes = false)
    val span = TaskSpans.of("updraft.task.file", settings.connection, TaskIdentities.of(context))
    val failures = new WriteFailures(path, settings, span, context)
    val written =
      if (settings.returns) new ReturnedFile(target, conf) else new DirectFile(target, conf)
    span.begin()
    val file =
      try FileExchange.open(
          span.on(settings.clientOptions),
          ofFile(command, target.getFileSystem(conf).makeQualified(target), context),
          layout.arrow,
          SparkInternals.allocator,
          written
        )
      catch {
        case e: Throwable =>
          span.end()
          written.abandon()
          throw e
      }
    val task = TaskFiles.of(context)
    val bytes = batchBytes(settings, command)
    val shown = metrics +: task.planMetrics.toSeq
    val opened =
      new RowFile(path, command, columns, file, written, bytes, watch, shown, failures, span, task)
    task.add(opened)
    opened
  }

  private def ofFile(command: WriteCommand, target: Path, context: TaskContext): WriteCommand =
    command.toBuilder
      .setProtocolVersion(Exchange.PROTOCOL_VERSION)
      .setTask(TaskIdentities.of(context))
      .setPath(uri(target))
      .build()

  /** Return the path as a URI, as writers expect it. The URI escapes percent signs, which the name
    * of a partition's directory may contain.
    */
  def uri(qualified: Path): String = qualified.toUri.toString

  /** Return the batch size, limited by the row group size, because a row group consists of whole
    * batches.
    */
  private def batchBytes(settings: WriteSettings, command: WriteCommand): Long =
    if (command.hasParquet) settings.batchBytes.min(command.getParquet.getRowGroupBytes)
    else settings.batchBytes
}
