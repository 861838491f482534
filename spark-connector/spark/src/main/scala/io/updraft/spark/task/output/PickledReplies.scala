// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.updraft.PickledRows
import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.Reply
import io.updraft.spark.columns.ColumnSet
import io.updraft.spark.task.input.RequestSpec

/** Reader of pickled lists of results. It converts each value as Spark does and returns columns. */
final class PickledReplies(resultTypes: Seq[DataType], spec: RequestSpec) extends ReplyReader {
  private[this] val results = spec.columnSet(resultTypes)
  private[this] val unpickled = new PickledRows.Results(resultTypes)
  private[this] val single = new GenericInternalRow(1)

  override def read(reply: Reply, rows: Int, schema: Schema): Array[ColumnVector] = {
    val lists = ColumnSet.loadUntyped(reply.batch(), schema)
    try read(lists.head, reply.rows(), rows)
    finally {
      lists.foreach(_.close())
      results.close()
    }
  }

  private def read(lists: ColumnVector, count: Int, rows: Int): Array[ColumnVector] = {
    var received = 0
    var i = 0
    while (i < count) {
      received += append(lists.getBinary(i))
      i += 1
    }
    if (received != rows) {
      throw new SparkException(s"the functions returned $received results for $rows rows")
    }
    results.load(rows)
  }

  private def append(list: Array[Byte]): Int = {
    val values = unpickled.load(list)
    values.asScala.foreach(value => results.append(row(value)))
    values.size()
  }

  private def row(value: Any): InternalRow =
    if (resultTypes.length == 1) {
      single.update(0, unpickled.convert(value))
      single
    } else {
      unpickled.convert(value).asInstanceOf[InternalRow]
    }
}
