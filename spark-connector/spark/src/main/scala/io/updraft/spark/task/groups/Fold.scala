// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.updraft.{SessionKeys, SpillingRows, WaitingRows, WindowFrames}

import io.updraft.spark.task.input.Answers

/** What becomes of a task's rows on both sides of a function that makes one value of many: groups
  * of rows go to it, and rows that waited here are joined with its results. Made on the driver,
  * serialized to the tasks.
  */
sealed trait Fold extends Serializable {

  /** Columns of the rows that functions read. */
  def columns: Seq[Attribute]

  /** What a request is answered with. */
  def answers: Answers.Value

  /** How many columns the waiting rows have. */
  def waitingColumns: Int

  /** The rows that functions read, made of the child's rows. `waiting` gets, here or from the
    * [[boundary]], a row for each result in the order of the results.
    */
  def rows(input: Iterator[InternalRow], waiting: WaitingRows): Iterator[InternalRow]

  /** Where groups of these rows end. */
  def boundary(waiting: WaitingRows): GroupBoundary

  /** Gives output rows for waiting rows joined with their results. */
  def resultProjection(): UnsafeProjection
}

/** Aggregates: the key of a group waits for the group's results. */
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

/** Windows: each row of the child waits for its own results. */
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
