// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.window.WindowFunctionFrame
import org.apache.spark.sql.types.IntegerType

/** Frames of Python window functions, created and moved by Spark's own code.
  *
  * A function whose frame is its whole partition receives the partition once. Every other frame
  * adds two columns before the child's columns: the begin and the end of each row's frame.
  * Functions over the same frame share these two columns.
  *
  * Made on the driver, serialized to the tasks.
  */
final case class WindowFrames(
    windowExpression: Seq[NamedExpression],
    partitionSpec: Seq[Expression],
    orderSpec: Seq[SortOrder],
    childOutput: Seq[Attribute],
    spillSize: SQLMetric
) extends FrameFactories {

  private val expressions: Seq[WindowExpression] =
    windowExpression.flatMap(_.collect { case window: WindowExpression => window })

  private val bounded: Seq[SpecifiedWindowFrame] =
    expressions.map(WindowFrames.frameOf).distinct.filterNot(WindowFrames.isWholePartition)

  /** Columns with the begin and the end of frames: two columns for each frame that is not a whole
    * partition.
    */
  val boundColumns: Seq[Attribute] = bounded.indices.flatMap { i =>
    Seq(s"begin_$i", s"end_$i").map(AttributeReference(_, IntegerType, nullable = false)())
  }

  /** Indexes of the [[boundColumns]] that each function reads before its arguments, in the order of
    * the results. A function whose frame is its whole partition reads no such columns.
    */
  val boundsOfFunctions: Seq[Seq[Int]] = expressions.map { window =>
    val frame = bounded.indexOf(WindowFrames.frameOf(window))
    if (frame < 0) Seq.empty else Seq(2 * frame, 2 * frame + 1)
  }

  /** Return the type of each function's frame for PySpark's worker. */
  def boundTypes: Seq[String] =
    boundsOfFunctions.map(columns => if (columns.isEmpty) "unbounded" else "bounded")

  /** Return the projection from the child's rows joined with the functions' results to output rows.
    */
  def resultProjection(): UnsafeProjection = createResultProjection(expressions)

  /** Return the child's sorted rows, each with the [[boundColumns]] before it. Return the rows
    * unchanged if there are no such columns. A row is valid until the next row is requested.
    */
  def rows(child: Iterator[InternalRow]): Iterator[InternalRow] =
    if (bounded.isEmpty) {
      child
    } else {
      val key = UnsafeProjection.create(partitionSpec, childOutput)
      new BoundedRows(new PartitionedRows(child, key), makeFrames, spillSize)
    }

  /** Return Spark's frames in the order of their columns. A frame keeps its position in the
    * partition.
    */
  private def makeFrames: IndexedSeq[WindowFunctionFrame] = {
    val factories = windowFrameExpressionFactoryPairs.map { case (windows, factory) =>
      WindowFrames.frameOf(windows.head) -> factory
    }.toMap
    bounded.map(frame => factories(frame)(EmptyRow)).toIndexedSeq
  }
}

object WindowFrames {

  private def frameOf(window: Expression): SpecifiedWindowFrame =
    window
      .asInstanceOf[WindowExpression]
      .windowSpec
      .frameSpecification
      .asInstanceOf[SpecifiedWindowFrame]

  private def isWholePartition(frame: SpecifiedWindowFrame): Boolean =
    frame.lower == UnboundedPreceding && frame.upper == UnboundedFollowing
}

/** Iterator that splits sorted rows where the bytes of the key change, as Spark's window operators
  * do.
  */
private final class PartitionedRows(
    rows: Iterator[InternalRow],
    key: UnsafeProjection
) extends Iterator[Iterator[InternalRow]] {
  private[this] var row: InternalRow = _

  override def hasNext: Boolean = {
    if (row == null && rows.hasNext) row = rows.next()
    row != null
  }

  override def next(): Iterator[InternalRow] = {
    if (!hasNext) throw new NoSuchElementException("no partition left")
    new Partition(key(row).copy())
  }

  private final class Partition(own: UnsafeRow) extends Iterator[InternalRow] {

    override def hasNext: Boolean = PartitionedRows.this.hasNext && key(row) == own

    override def next(): InternalRow = {
      val taken = row
      row = null
      taken
    }
  }
}

/** Iterator that holds one partition at a time, on disk if the partition is large, and moves the
  * frames along the rows of the partition.
  */
private final class BoundedRows(
    partitions: Iterator[Iterator[InternalRow]],
    frames: IndexedSeq[WindowFunctionFrame],
    spillSize: SQLMetric
) extends Iterator[InternalRow] {
  private[this] val partition = SpillingRows.partition()
  private[this] var rows: Iterator[UnsafeRow] = Iterator.empty
  private[this] var index = 0
  private[this] val bounds =
    new SpecificInternalRow(frames.flatMap(_ => Seq(IntegerType, IntegerType)))
  private[this] val joined = new JoinedRow

  private[this] var ended = false

  override def hasNext: Boolean = rows.hasNext || (!ended && enterPartition())

  private def enterPartition(): Boolean = {
    partition.clear()
    if (partitions.hasNext) {
      partitions.next().foreach(row => partition.add(row.asInstanceOf[UnsafeRow]))
      frames.foreach(_.prepare(partition))
      rows = partition.generateIterator()
      index = 0
    } else {
      spillSize += partition.spillSize
      ended = true
    }
    !ended
  }

  override def next(): InternalRow = {
    if (!hasNext) throw new NoSuchElementException("no row left")
    val row = rows.next()
    var i = 0
    while (i < frames.length) {
      frames(i).write(index, row)
      bounds.setInt(2 * i, frames(i).currentLowerBound())
      bounds.setInt(2 * i + 1, frames(i).currentUpperBound())
      i += 1
    }
    index += 1
    joined(bounds, row)
  }
}
