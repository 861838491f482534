// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import java.util.ArrayDeque

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.Vectors
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.ColumnVector
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.client.Replies
import io.updraft.spark.task.input.RetainedRows

class AnsweredRowsSuite extends AnyFunSuite {
  private val schema = new StructType().add("id", "long")

  private final class Answered(requests: Seq[Long]*) extends AutoCloseable {
    private val rows = new AnsweredRows
    private val waiting = new ArrayDeque[RetainedRows]
    requests.foreach { ids =>
      val column = Vectors.onHeap(ids.map(InternalRow(_)), schema).column(0)
      waiting.add(RetainedRows(ids.length, ids.length, Array(column), null))
    }

    /** Return the id of the input row for each row of a reply. */
    def by(rowCount: Int, rowEnds: Int*): Seq[Long] = columnsOf(rowCount, rowEnds).flatMap {
      case (column, count) => (0 until count).map(column.getLong)
    }

    private def columnsOf(rowCount: Int, rowEnds: Seq[Int]): Seq[(ColumnVector, Int)] = {
      rows.beginReply(waiting)
      val reply =
        Replies.ofBinaries(Seq.fill(rowCount)(Array.emptyByteArray), rowEnds)
      try {
        val from = rows.of(reply)
        rows.columns(from).toSeq.map(_ -> from.length)
      } finally reply.batch().close()
    }

    override def close(): Unit = {
      rows.close()
      waiting.forEach(_.close())
    }
  }

  private def check(requests: Seq[Long]*)(test: Answered => Unit): Unit = {
    val answered = new Answered(requests: _*)
    try test(answered)
    finally answered.close()
  }

  test("each output stands beside its row, also where rows have none or several") {
    check(Seq(10, 11, 12))(answered => assert(answered.by(3, 0, 2, 3) == Seq(11, 11, 12)))
  }

  test("a large output goes on in the next reply") {
    check(Seq(10, 11)) { answered =>
      assert(answered.by(2) == Seq(10, 10))
      assert(answered.by(1) == Seq(10))
      assert(answered.by(3, 1, 3) == Seq(10, 11, 11))
    }
  }

  test("the next request begins with the reply after its predecessor's last row") {
    check(Seq(10, 11), Seq(20)) { answered =>
      assert(answered.by(1, 1) == Seq(10))
      assert(answered.by(1, 1) == Seq(11))
      assert(answered.by(1, 1) == Seq(20))
    }
  }

  test("what comes after the last row belongs to it") {
    check(Seq(10, 11)) { answered =>
      assert(answered.by(2, 1, 2) == Seq(10, 11))
      assert(answered.by(2, 1, 2) == Seq(11, 11))
    }
  }
}
