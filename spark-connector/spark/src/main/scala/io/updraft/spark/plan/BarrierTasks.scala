// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.nio.ByteBuffer

import org.apache.spark.internal.Logging
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{LeafExecNode, PlanLater, SortExec, SparkPlan}
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}
import org.apache.spark.{BarrierTaskContext, Partition, SparkContext, SparkEnv, TaskContext}

import io.updraft.spark.columns.SelectedColumn
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.reasons.FallbackReason
import io.updraft.spark.task.RowBatches
import io.updraft.spark.task.input.RequestSpec

/** Fallback for tasks of a barrier stage. It runs an operator's functions in Spark's own Python
  * workers, because only these workers have a BarrierTaskContext. The plan does not show that a
  * stage is a barrier stage: the user calls `.rdd.barrier()` after planning.
  *
  * @param operator
  *   name of the operator, for messages
  * @param planned
  *   Spark's operator. Tasks receive the operator as bytes, and only barrier tasks deserialize
  *   these bytes. The driver keeps the object, because Spark forgets metrics that nothing refers
  *   to.
  * @param inputs
  *   columns of each child
  * @param output
  *   columns of the operator and limits of its batches
  * @param selected
  *   number of leading output columns that generated code reads as [[SelectedColumn]]
  */
private[plan] final class BarrierTasks(
    operator: String,
    settings: UdfSettings,
    @transient private val planned: StockTask,
    inputs: Seq[Seq[Attribute]],
    output: RequestSpec,
    selected: Int
) extends Serializable
    with Logging {
  private val stock = SparkEnv.get.closureSerializer.newInstance().serialize(planned).array()

  def include(context: TaskContext): Boolean = context.isInstanceOf[BarrierTaskContext]

  /** Return the operator's rows. */
  def rows(
      partition: Int,
      children: Seq[Iterator[InternalRow]],
      context: TaskContext
  ): Iterator[InternalRow] = {
    StockPythonExec.permit(settings, operator, FallbackReason.Barrier)
    logWarning(s"$operator runs in Spark's own Python workers: ${FallbackReason.Barrier}")
    SparkEnv.get.closureSerializer
      .newInstance()
      .deserialize[StockTask](ByteBuffer.wrap(stock), getClass.getClassLoader)
      .rows(
        partition,
        children.zip(inputs).map { case (rows, columns) => unsafe(rows, columns) },
        context
      )
  }

  /** Return the operator's rows as batches. */
  def batches(
      partition: Int,
      children: Seq[Iterator[InternalRow]],
      context: TaskContext
  ): Iterator[ColumnarBatch] =
    new RowBatches(rows(partition, children, context), output, shown, context)

  /** Return the rows as UnsafeRows, which Spark's operators expect. */
  private def unsafe(rows: Iterator[InternalRow], columns: Seq[Attribute]) = {
    lazy val projection = UnsafeProjection.create(columns, columns)
    rows.map {
      case row: UnsafeRow => row
      case row => projection(row)
    }
  }

  private def shown(columns: Array[ColumnVector], rows: Int): Array[ColumnVector] = {
    val all = Array.range(0, rows)
    columns.take(selected).map(new SelectedColumn(_, all)) ++ columns.drop(selected)
  }
}

private[plan] object BarrierTasks {

  /** Return the fallback of an operator: the operator's logical node, planned by Spark's own
    * strategies over rows that a task passes in. Return None for a stream, which has no barrier
    * stages, and for an operator that another extension made without a logical node.
    */
  def of(operator: SparkPlan, settings: UdfSettings, output: RequestSpec): Option[BarrierTasks] =
    operator.logicalLink
      .filter(!_.isStreaming)
      .flatMap(SparkInternals.planByOthers(operator.session, _).headOption)
      .map(overTaskRows(operator, _, settings, output))

  private def overTaskRows(
      operator: SparkPlan,
      planned: SparkPlan,
      settings: UdfSettings,
      output: RequestSpec
  ): BarrierTasks = {
    val inputs = operator.children.map(child => new TaskRows(operator.session.sparkContext))
    val leaves = operator.children.zip(inputs).map { case (child, rows) =>
      PlacedRows(child.output, child.outputPartitioning, child.outputOrdering, rows)
    }.iterator
    val stock = planned
      .transform { case _: PlanLater => leaves.next() }
      .transformUp { case plan => sorted(plan) }
    val reason = FallbackReason.Barrier.toString
    val rows = new ExplainedRDD(stock.execute(), reason)
    findDependencies(rows)
    new BarrierTasks(
      operator.nodeName,
      settings,
      new StockTask(inputs, rows),
      operator.children.map(_.output),
      output,
      operator.vectorTypes.toSeq.flatten.count(_ == classOf[SelectedColumn].getName)
    )
  }

  /** Resolve the dependencies of an RDD and its ancestors. Tasks of an RDD know only the
    * dependencies that the RDD has resolved on the driver.
    */
  private def findDependencies(rows: RDD[_]): Unit =
    rows.dependencies.foreach(dependency => findDependencies(dependency.rdd))

  /** Sort the inputs that Spark's operator requires to be sorted. The inputs are unsorted, because
    * our operator groups rows itself.
    */
  private def sorted(plan: SparkPlan): SparkPlan = plan.withNewChildren(
    plan.children.zip(plan.requiredChildOrdering).map { case (child, required) =>
      if (SortOrder.orderingSatisfies(child.outputOrdering, required)) child
      else SortExec(required, global = false, child)
    }
  )
}

/** Spark's operator over the rows of one task. */
private final class StockTask(inputs: Seq[TaskRows], output: RDD[InternalRow])
    extends Serializable {

  def rows(
      partition: Int,
      children: Seq[Iterator[InternalRow]],
      context: TaskContext
  ): Iterator[InternalRow] = {
    inputs.zip(children).foreach { case (input, rows) => input.show(partition, rows) }
    output.iterator(output.partitions(partition), context)
  }
}

/** Rows passed in by a task. The RDD has just enough partitions to include the partition of the
  * task.
  */
private final class TaskRows(context: SparkContext) extends RDD[InternalRow](context, Nil) {
  @transient private var partition = 0
  @transient private var rows: Iterator[InternalRow] = _

  def show(partition: Int, rows: Iterator[InternalRow]): Unit = {
    this.partition = partition
    this.rows = rows
  }

  override protected def getPartitions: Array[Partition] =
    Array.tabulate(partition + 1)(number => new Partition { override def index: Int = number })

  override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] = rows
}

/** Placeholder for a child whose rows a task passes in. */
private case class PlacedRows(
    output: Seq[Attribute],
    override val outputPartitioning: Partitioning,
    override val outputOrdering: Seq[SortOrder],
    rows: RDD[InternalRow]
) extends LeafExecNode {
  override protected def doExecute(): RDD[InternalRow] = rows
}
