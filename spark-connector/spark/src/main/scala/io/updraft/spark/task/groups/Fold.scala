// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.updraft.{SessionKeys, SpillingRows, WaitingRows, WindowFrames}

import io.updraft.spark.task.input.Answers

/** Handling of a task's rows for a function that computes one value from many rows. The function
  * receives groups of rows. Other rows wait in the executor, to be joined with the function's
  * results. Made on the driver, serialized to the tasks.
  */
sealed trait Fold extends Serializable {

  /** Return the columns of the rows that functions read. */
  def columns: Seq[Attribute]

  /** Return whether a reply contains a row for each row of the request or for each group. */
  def answers: Answers.Value

  /** Return the number of columns of the waiting rows. */
  def waitingColumns: Int

  /** Return the rows that functions read, made from the child's rows. For each result, in the order
    * of the results, either this method or the [[boundary]] adds a row to `waiting`.
    */
  def rows(input: Iterator[InternalRow], waiting: WaitingRows): Iterator[InternalRow]

  /** Return the test that tells where groups of these rows end. */
  def boundary(waiting: WaitingRows): GroupBoundary

  /** Return the projection from waiting rows joined with their results to output rows. */
  def resultProjection(): UnsafeProjection
}

/** Fold of aggregates: the key of a group waits for the group's results. */
final case class AggregateFold(
    keys: Seq[NamedExpression],
    sessions: Option[SessionKeys],
    groupedRows: GroupedRows,
    childOutput: Seq[Attribute],
    functionResults: Seq[Attribute],
    results: Seq[NamedExpression]
) extends Fold {

  override def columns: Seq[Attribute] = childOutput

  override def answers: Answers.Value = Answers.PerGroup

  override def waitingColumns: Int = keys.length

  override def rows(input: Iterator[InternalRow], waiting: WaitingRows): Iterator[InternalRow] = {
    val grouped = groupedRows.of(input)
    sessions.fold(grouped)(SpillingRows.inSessions(grouped, _))
  }

  override def boundary(waiting: WaitingRows): GroupBoundary = {
    val key = UnsafeProjection.create(keys, childOutput)
    new OrderedBoundary(keys, childOutput) {
      override def enter(row: InternalRow): Unit = {
        waiting.add(key(row))
        super.enter(row)
      }
    }
  }

  override def resultProjection(): UnsafeProjection =
    UnsafeProjection.create(results, keys.map(_.toAttribute) ++ functionResults)
}

/** Fold of windows: each row of the child waits for its own results. */
final case class WindowFold(frames: WindowFrames) extends Fold {

  override def columns: Seq[Attribute] = frames.boundColumns ++ frames.childOutput

  override def answers: Answers.Value = Answers.PerRow

  override def waitingColumns: Int = frames.childOutput.length

  override def rows(input: Iterator[InternalRow], waiting: WaitingRows): Iterator[InternalRow] =
    frames.rows(input.map { row =>
      waiting.add(row)
      row
    })

  override def boundary(waiting: WaitingRows): GroupBoundary =
    new SameBytesBoundary(frames.partitionSpec, columns)

  override def resultProjection(): UnsafeProjection = frames.resultProjection()
}
