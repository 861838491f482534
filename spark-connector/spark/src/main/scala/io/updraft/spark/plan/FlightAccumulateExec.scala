// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical.Distribution
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.client.Replay
import io.updraft.proto.v1.AggregateStage
import io.updraft.spark.columns.ResultColumns
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.input.ArgumentInput
import io.updraft.spark.task.output.{ReplyReader, Results}
import io.updraft.spark.task.{RegisteredTaskFunction, TaskRunner}

/** What both stages of a registered aggregate share: columns in, of which the first are keys, and a
  * row for each group out when the input has ended.
  */
trait FlightStageExec extends FlightRegisteredExec {

  override def function: PythonUDAF

  protected def stage: AggregateStage

  protected def keys: Seq[Expression]

  protected def arguments: Seq[Expression]

  override def producedAttributes: AttributeSet = AttributeSet(output) -- child.outputSet

  override def vectorTypes: Option[Seq[String]] =
    Some(output.map(column => ResultColumns.className(column.dataType)))

  /** From the start: a state has the rows of many batches. */
  override protected def replay: Replay =
    if (function.deterministic) Replay.FROM_THE_START else Replay.NEVER

  override protected def taskRunner: TaskRunner = {
    val inputs = keys ++ arguments
    val copied =
      child.output.indices.filter(column => inputs.exists(_.semanticEquals(child.output(column))))
    val types = output.map(_.dataType)
    val hasKeys = keys.nonEmpty
    new TaskRunner(
      settings,
      new RegisteredTaskFunction(called, replay, stage, keys.length),
      new ArgumentInput(argumentSpec(copied, Seq.empty, inputs)),
      () => FlightStageExec.newResults(types, hasKeys),
      exchangeMetrics
    )
  }
}

object FlightStageExec {

  /** Without keys there is a group even where there are no rows. */
  private def newResults(types: Seq[DataType], hasKeys: Boolean): Results = {
    val replies = new ReplyReader.OfColumns(types)
    if (hasKeys) new Results.FreeRunning(replies) else new Results.Unprompted(replies)
  }
}

/** Makes the state of each group of a partition, where the rows are.
  *
  * @param state
  *   the column of the states
  */
case class FlightAccumulateExec(
    groups: Seq[NamedExpression],
    function: PythonUDAF,
    state: Attribute,
    child: SparkPlan,
    settings: UdfSettings
) extends FlightStageExec {

  /** The keys in the output. */
  val keyColumns: Seq[Attribute] = groups.map(_.toAttribute)

  override def output: Seq[Attribute] = keyColumns :+ state

  override protected def stage: AggregateStage = AggregateStage.AGGREGATE_STAGE_ACCUMULATE

  override protected def keys: Seq[Expression] = groups.map { group =>
    SparkInternals.normalizedKey(group match {
      case Alias(value, _) => value
      case other => other
    })
  }

  override protected def arguments: Seq[Expression] = function.children

  override protected def withNewChildInternal(newChild: SparkPlan): FlightAccumulateExec =
    copy(child = newChild)
}

/** Makes the result of each group of its states.
  *
  * @param state
  *   the column of the states
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

  override protected def arguments: Seq[Expression] = Seq(state)

  override protected def withNewChildInternal(newChild: SparkPlan): FlightMergeExec =
    copy(child = newChild)
}
