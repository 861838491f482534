// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.updraft.InputFiles
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.groups.{CogroupedFeed, GroupedInput, GroupedSide}
import io.updraft.spark.task.output.{ReplyReader, Results, RowResult}

/** Runner of functions over the groups of two inputs, whose replies do not match requests one to
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
