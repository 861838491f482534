// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.updraft.{InputFiles, SparkInternals, WorkerLogs}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.client.{Exchange, TaskExchange}
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.groups.{CogroupedFeed, GroupedInput, GroupedSide}
import io.updraft.spark.task.input.{FusedCode, FusedInput, RequestSource, TaskInput}
import io.updraft.spark.task.output.{ReplyReader, Results, RowResult}
import io.updraft.spark.trace.{TaskSpan, TaskSpans}

/** Work of one task of an operator. The driver creates it, and Spark runs it once for each
  * partition.
  */
abstract class TaskPipeline(
    settings: UdfSettings,
    function: TaskFunction,
    metrics: ExchangeMetrics
) extends Serializable {

  protected def functionNames: String = function.names

  protected def pipeline(
      source: RequestSource,
      schema: Schema,
      results: Results,
      files: InputFiles,
      context: TaskContext
  ): Iterator[ColumnarBatch] = {
    val span =
      TaskSpans.of("updraft.task.exchange", settings.connection, TaskIdentities.of(context))
    new PipelinedIterator(
      source,
      results,
      () => open(schema, span, context),
      files,
      new Failures(function, settings, span, context),
      new WorkerLogs(function.loggingSession, context),
      metrics,
      span,
      context
    )
  }

  private def open(schema: Schema, span: TaskSpan, context: TaskContext): TaskExchange = {
    val opening = function.opening(context)
    val main = Exchange.open(
      span.on(settings.clientOptions),
      opening.command,
      schema,
      SparkInternals.allocator,
      function.replay,
      opening.artifacts.asJava
    )
    new TaskExchange(main, function.replay)
  }
}

/** Work of one task of an operator with one child. The child produces rows or batches. */
final class TaskRunner(
    settings: UdfSettings,
    function: TaskFunction,
    input: TaskInput,
    newResults: () => Results,
    metrics: ExchangeMetrics
) extends TaskPipeline(settings, function, metrics) {

  /** Create the runner of a function that the session ships. */
  def this(
      settings: UdfSettings,
      call: FunctionCall,
      input: TaskInput,
      newResults: () => Results,
      metrics: ExchangeMetrics
  ) = this(settings, TaskFunction.of(call, input.schema, settings), input, newResults, metrics)

  def runBatches(
      partition: Int,
      batches: Iterator[ColumnarBatch],
      context: TaskContext
  ): Iterator[ColumnarBatch] = run(context)(input.ofBatches(batches, _, partition))

  def runRows(
      partition: Int,
      rows: Iterator[InternalRow],
      context: TaskContext
  ): Iterator[ColumnarBatch] = run(context)(input.ofRows(rows, _, partition))

  /** Return the input that generated code may fill directly, without building rows. */
  def fused: Option[FusedInput] = input.fused

  def runFused(
      input: FusedInput,
      code: FusedCode,
      partition: Int,
      rows: Iterator[InternalRow],
      context: TaskContext
  ): Iterator[ColumnarBatch] = run(context)(input.requests(code, rows, _, partition))

  private def run(context: TaskContext)(source: InputFiles => RequestSource) = {
    val files = new InputFiles
    pipeline(source(files), input.schema, newResults(), files, context)
  }
}

/** Runner of functions over the groups of two inputs, where replies do not match requests one to
  * one.
  */
final class CogroupedMapRunner(
    settings: UdfSettings,
    call: FunctionCall,
    left: GroupedInput,
    right: GroupedInput,
    result: RowResult,
    metrics: ExchangeMetrics
) extends TaskPipeline(settings, TaskFunction.of(call, left.schema, settings), metrics) {

  def run(
      partition: Int,
      leftRows: Iterator[InternalRow],
      rightRows: Iterator[InternalRow],
      context: TaskContext
  ): Iterator[ColumnarBatch] = {
    val files = new InputFiles
    pipeline(
      new CogroupedFeed(
        new GroupedSide(leftRows, left, partition),
        new GroupedSide(rightRows, right, partition),
        left.keyOrdering,
        files
      ),
      left.schema,
      new Results.FreeRunning(new ReplyReader.OfRows(result)),
      files,
      context
    )
  }
}
