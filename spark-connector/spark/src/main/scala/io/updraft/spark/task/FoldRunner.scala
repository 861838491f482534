// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.JoinedRow
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.updraft.{InputFiles, WaitingRows}

import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.groups.{Fold, GroupedFeed}
import io.updraft.spark.task.input.{RequestBuilder, RequestSpec}
import io.updraft.spark.task.output.{ReplyReader, Results}

/** Runner of functions that compute one value from many rows. The pool receives the groups. Rows
  * that wait in the executor are then joined with the results.
  *
  * A request may begin inside a group, and another worker would not know the group's first rows. So
  * an exchange can be replayed only from its first batch on.
  */
final class FoldRunner(
    settings: UdfSettings,
    call: FunctionCall,
    spec: RequestSpec,
    fold: Fold,
    resultTypes: Seq[DataType],
    metrics: ExchangeMetrics
) extends TaskPipeline(settings, TaskFunction.of(call, spec.inputSchema, settings), metrics) {

  def run(
      partition: Int,
      input: Iterator[InternalRow],
      context: TaskContext
  ): Iterator[InternalRow] = {
    val waiting = new WaitingRows(fold.waitingColumns, context)
    val joined = new JoinedRow
    val output = fold.resultProjection()
    results(partition, input, waiting, context)
      .flatMap(_.rowIterator().asScala)
      .map(result => output(joined(waiting.remove(), result)))
  }

  private def results(
      partition: Int,
      input: Iterator[InternalRow],
      waiting: WaitingRows,
      context: TaskContext
  ) = {
    val files = new InputFiles
    val builder = new RequestBuilder.OfArguments(spec, partition, fold.answers)
    pipeline(
      new GroupedFeed(
        () => fold.rows(input, waiting),
        fold.boundary(waiting),
        builder,
        spec.limits,
        files
      ),
      builder.schema,
      new Results.OneToOne(functionNames, new ReplyReader.OfColumns(resultTypes)),
      files,
      context
    )
  }
}
