// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import org.apache.spark.TaskContext
import org.apache.spark.sql.updraft.CalledFunction

import io.updraft.client.Replay
import io.updraft.proto.v1.{AggregateStage, RegisteredFunction}

/** Function deployed with the pool.
  *
  * @param keyColumns
  *   for aggregates: number of leading columns that form the group key
  * @param filtered
  *   for aggregates: true if the column after the keys selects the accumulated rows
  * @param joined
  *   true if the rows of a table function are joined to their input rows
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

  override def opening(context: TaskContext): TaskRequest = {
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
    TaskRequest(command.build(), Seq.empty)
  }
}
