// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical.Distribution
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.client.Replay
import io.updraft.proto.v1.AggregateStage
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.input.ArgumentInput
import io.updraft.spark.task.output.{ReplyReader, Results}
import io.updraft.spark.task.{RegisteredTaskFunction, TaskRunner}

/** Shared part of both stages of a registered aggregate. The input of a stage begins with the key
  * columns. After the end of the input, the stage returns one row for each group.
  */
trait FlightStageExec extends FlightRegisteredExec {

  override def function: PythonUDAF

  protected def stage: AggregateStage

  protected def keys: Seq[Expression]

  /** Return the condition that selects the rows to accumulate; None selects all rows. */
  protected def filter: Option[Expression]

  protected def arguments: Seq[Expression]

  override def producedAttributes: AttributeSet = AttributeSet(output) -- child.outputSet

  /** Return the replay policy. A replay begins at the first batch, because a state covers the rows
    * of many batches.
    */
  override protected def replay: Replay =
    if (function.deterministic) Replay.FROM_THE_START else Replay.NEVER

  override protected[plan] def taskRunner: TaskRunner = {
    val inputs = keys ++ filter ++ arguments
    val copied =
      child.output.indices.filter(column => inputs.exists(_.semanticEquals(child.output(column))))
    val types = output.map(_.dataType)
    val hasKeys = keys.nonEmpty
    new TaskRunner(
      settings,
      new RegisteredTaskFunction(called, replay, stage, keys.length, filter.nonEmpty),
      new ArgumentInput(argumentSpec(copied, Seq.empty, inputs)),
      () => FlightStageExec.newResults(types, hasKeys),
      exchangeMetrics
    )
  }
}

object FlightStageExec {

  /** Return the reader of results. Without keys there is exactly one group, even if there are no
    * rows.
    */
  private def newResults(types: Seq[DataType], hasKeys: Boolean): Results = {
    val replies = new ReplyReader.OfColumns(types)
    if (hasKeys) new Results.FreeRunning(replies) else new Results.Unprompted(replies)
  }
}

/** Operator that computes the state of each group within a partition, before the shuffle.
  *
  * @param filter
  *   condition of the query's FILTER; a group remains even if the condition excludes all of its
  *   rows
  * @param state
  *   column of the states
  */
case class FlightAccumulateExec(
    groups: Seq[NamedExpression],
    override val filter: Option[Expression],
    function: PythonUDAF,
    state: Attribute,
    child: SparkPlan,
    settings: UdfSettings
) extends FlightStageExec {

  /** Key columns of the output. */
  val keyColumns: Seq[Attribute] = groups.map(_.toAttribute)

  override def output: Seq[Attribute] = keyColumns :+ state

  override protected def stage: AggregateStage = AggregateStage.AGGREGATE_STAGE_ACCUMULATE

  override protected def keys: Seq[Expression] = groups.map { group =>
    SparkInternals.normalizedKey(group match {
      case Alias(value, _) => value
      case other => other
    })
  }

  /** Return the arguments. A computed argument is null in rows that the filter excludes, because
    * the computation could fail there: for example, 1 / x with FILTER (WHERE x <> 0).
    */
  override protected def arguments: Seq[Expression] = filter.fold(function.children) { condition =>
    function.children.map {
      case column: Attribute => column
      case value => If(condition, value, Literal.create(null, value.dataType))
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): FlightAccumulateExec =
    copy(child = newChild)
}

/** Operator that computes the result of each group from the group's states, after the shuffle.
  *
  * @param state
  *   column of the states
  */
case class FlightMergeExec(
    keys: Seq[Attribute],
    function: PythonUDAF,
    state: Attribute,
    result: Attribute,
    child: SparkPlan,
    settings: UdfSettings
) extends FlightStageExec {

  override def output: Seq[Attribute] = keys :+ result

  override def requiredChildDistribution: Seq[Distribution] = Seq(SparkInternals.togetherBy(keys))

  override protected def stage: AggregateStage = AggregateStage.AGGREGATE_STAGE_MERGE

  override protected def filter: Option[Expression] = None

  override protected def arguments: Seq[Expression] = Seq(state)

  override protected def withNewChildInternal(newChild: SparkPlan): FlightMergeExec =
    copy(child = newChild)
}
