// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import java.util.{ArrayDeque, Collections}

import scala.jdk.CollectionConverters._

import net.razorvine.pickle.Pickler
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference}
import org.apache.spark.sql.execution.Vectors
import org.apache.spark.sql.types.{BinaryType, LongType, StructType}
import org.apache.spark.sql.updraft.{ArrowSchemas, SparkInternals}
import org.apache.spark.sql.vectorized.ColumnarBatch
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.client.Replies
import io.updraft.spark.columns.BatchLimits
import io.updraft.spark.task.input.{RequestSpec, RetainedRows}

class PickledTableResultsSuite extends AnyFunSuite {
  private val allocator = SparkInternals.allocator
  private val rowType = new StructType().add("x", LongType)
  private val replySchema =
    ArrowSchemas.of(new StructType().add("_0", BinaryType), "UTC", largeVarTypes = false)
  private val id = AttributeReference("id", LongType)()
  private val limits = BatchLimits(10000, 64 << 20, 1 << 20, 4 << 20, 16 << 20)

  /** Return an output as PySpark's worker pickles it: a list whose only item has the rows. */
  private def output(values: Any*): Array[Byte] = {
    val rows = values.map {
      case null => null
      case value => Array[AnyRef](Long.box(value.toString.toLong))
    }
    new Pickler().dumps(Collections.singletonList(rows.asJava))
  }

  private final class Task(ids: Seq[Long], batchBytes: Long = 1 << 20) extends AutoCloseable {
    private val spec = RequestSpec(
      Seq[Attribute](id),
      Seq(0),
      Seq(0),
      Seq(id),
      limits,
      "UTC",
      largeVarTypes = false
    )
    private val results = new PickledTableResults(rowType, spec, batchBytes)
    private val waiting = new ArrayDeque[RetainedRows]
    private val kept = Vectors.onHeap(ids.map(InternalRow(_)), new StructType().add("id", LongType))
    waiting.add(RetainedRows(ids.length, ids.length, Array(kept.column(0)), null))

    /** Return the batches as lists of (input row, result) pairs. */
    def batches(values: Seq[Array[Byte]], rowEnds: Int*): Seq[Seq[(Long, Option[Long])]] = {
      val reply = Replies.ofBinaries(values, rowEnds)
      val made =
        try results.of(reply, waiting, replySchema)
        finally reply.batch().close()
      made.map { result =>
        val batch = new ColumnarBatch(result.columns, result.rows)
        try batch.rowIterator().asScala.map(pair).toList
        finally result.columns.foreach(_.close())
      }.toList
    }

    private def pair(row: InternalRow): (Long, Option[Long]) =
      row.getLong(0) -> Option.when(!row.isNullAt(1))(row.getLong(1))

    override def close(): Unit = {
      results.close()
      waiting.forEach(_.close())
    }
  }

  private def check(ids: Seq[Long], batchBytes: Long = 1 << 20)(test: Task => Unit): Unit = {
    val before = allocator.getAllocatedMemory
    val task = new Task(ids, batchBytes)
    try test(task)
    finally task.close()
    assert(allocator.getAllocatedMemory == before)
  }

  test("each row of an output stands beside the input row, and a row may be null") {
    check(Seq(10, 11, 12)) { task =>
      val batches = task.batches(Seq(output(1, 2), output(), output(null)), 1, 2, 3)
      assert(batches == Seq(Seq(10L -> Some(1L), 10L -> Some(2L), 12L -> None)))
    }
  }

  test("an output in pieces is read when its last piece is there") {
    val (left, right) = output(1, 2).splitAt(7)
    check(Seq(10, 11)) { task =>
      assert(task.batches(Seq(left)).isEmpty)
      assert(
        task.batches(Seq(right, output(3)), 1, 2) ==
          Seq(Seq(10L -> Some(1L), 10L -> Some(2L), 11L -> Some(3L)))
      )
    }
  }

  test("an output of many rows comes in batches of about their bytes") {
    check(Seq(10), batchBytes = 512) { task =>
      val batches = task.batches(Seq(output((0 until 200): _*)), 1)
      assert(batches.map(_.length) == Seq(64, 64, 64, 8))
    }
  }
}
