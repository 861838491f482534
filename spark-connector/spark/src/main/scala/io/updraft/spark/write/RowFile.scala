// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import java.util.concurrent.atomic.AtomicBoolean

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.datasources.OutputWriter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.client.{Exchange, FileExchange}
import io.updraft.proto.v1.WriteCommand
import io.updraft.spark.columns.{BatchCut, BatchLimits, BatchSize, ColumnSet}
import io.updraft.spark.config.WriteSettings
import io.updraft.spark.task.TaskIdentities
import io.updraft.spark.trace.{TaskSpan, TaskSpans}

/** One file that Spark writes row by row: rows become Arrow batches, batches go to the writer, and
  * a close returns when the receipt is there. Of rows that lie in a batch ([[BatchRow]]) only the
  * range is kept, which is copied as a whole. Spark also closes what it gives up; then nothing is
  * published.
  *
  * @param written
  *   the file as this executor's storage has it
  */
final class RowFile private (
    override val path: String,
    columns: ColumnSet,
    file: FileExchange,
    written: WrittenFile,
    batchBytes: Long,
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
  private[this] var complete = false
  // The rows of a batch that belong to this file and were not copied yet.
  private[this] var batch: ColumnarBatch = _
  private[this] var from = 0
  private[this] var until = 0

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
    // Whoever made the batch may take it back when it is asked for the next.
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

  /** A row's own size says how soon the columns have to be measured again. */
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
    complete = true
    metrics.foreach(_.finished(receipt))
  }

  override def cancel(reason: String): Unit = file.cancel(reason)

  override def release(): Unit = if (released.compareAndSet(false, true)) {
    task.remove(this)
    metrics.foreach(_.closed(file.waitedNanos()))
    span.end("wait_nanoseconds" -> file.waitedNanos())
    columns.close()
    file.close()
    if (!complete) written.abandon()
  }
}

object RowFile {

  /** How often the size of a batch is looked at while it grows. */
  private val LooksPerBatch = 16

  /** Rows without a size of their own between two looks. */
  private val UnknownRowsPerLook = 16

  def open(
      path: String,
      schema: StructType,
      settings: WriteSettings,
      command: WriteCommand,
      metrics: WriteMetrics,
      conf: Configuration,
      context: TaskContext
  ): RowFile = {
    val target = new Path(path)
    val arrow = StoredSchema.arrow(schema)
    val types = StoredSchema.of(schema).fields.toSeq.map(_.dataType)
    val columns = new ColumnSet(types, arrow, largeVarTypes = false)
    val span = TaskSpans.of("updraft.task.file", settings.connection, TaskIdentities.of(context))
    val failures = new WriteFailures(path, settings, span, context)
    val written =
      if (settings.returns) new ReturnedFile(target, conf) else new DirectFile(target, conf)
    span.begin()
    val file =
      try FileExchange.open(
          span.on(settings.clientOptions()),
          ofFile(command, target.getFileSystem(conf).makeQualified(target), context),
          arrow,
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
    val opened = new RowFile(path, columns, file, written, bytes, shown, failures, span, task)
    task.add(opened)
    opened
  }

  private def ofFile(command: WriteCommand, target: Path, context: TaskContext): WriteCommand =
    command.toBuilder
      .setProtocolVersion(Exchange.PROTOCOL_VERSION)
      .setTask(TaskIdentities.of(context))
      .setPath(uri(target))
      .build()

  /** A path as writers get it: a partition's directory may have percent signs of its own. */
  def uri(qualified: Path): String = qualified.toUri.toString

  /** A row group has whole batches. */
  private def batchBytes(settings: WriteSettings, command: WriteCommand): Long =
    if (command.hasParquet) settings.batchBytes.min(command.getParquet.getRowGroupBytes)
    else settings.batchBytes
}
