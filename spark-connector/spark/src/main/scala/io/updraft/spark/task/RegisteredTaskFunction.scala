// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import org.apache.spark.TaskContext
import org.apache.spark.sql.updraft.CalledFunction

import io.updraft.client.Replay
import io.updraft.proto.v1.{AggregateStage, RegisteredFunction}

/** A function that is deployed with the pool.
  *
  * @param keyColumns
  *   of an aggregate: number of columns, the first ones, that name the group of a row
  * @param filtered
  *   of an aggregate: whether the column behind the keys says which rows are accumulated
  * @param joined
  *   whether the rows of a table function are joined to those that they came from
  */
final class RegisteredTaskFunction(
    called: CalledFunction,
    override val replay: Replay,
    stage: AggregateStage = AggregateStage.AGGREGATE_STAGE_UNSPECIFIED,
    keyColumns: Int = 0,
    filtered: Boolean = false,
    joined: Boolean = false
) extends TaskFunction {

  override def names: String = s"${called.fullName}()"

  override def opening(context: TaskContext): Opening = {
    val function = RegisteredFunction
      .newBuilder()
      .setName(called.name)
      .setVersion(called.version)
      .setStage(stage)
      .setKeyColumns(keyColumns)
      .setFiltered(filtered)
      .setJoined(joined)
    val command = TaskFunction
      .command(context, connectSession = "", maxRecordsPerBatch = 0)
      .setRegistered(function)
    Opening(command.build(), Seq.empty)
  }
}
