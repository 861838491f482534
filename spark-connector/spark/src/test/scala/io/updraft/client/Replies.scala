// SPDX-License-Identifier: Apache-2.0
package io.updraft.client

import org.apache.arrow.vector.ipc.message.ArrowRecordBatch

import io.updraft.spark.columns.{BinaryBuilder, ColumnSet}

/** Replies as an exchange returns them. */
object Replies {

  /** Return a reply with a batch of binary values. Outputs end at `rowEnds`. */
  def ofBinaries(values: Seq[Array[Byte]], rowEnds: Seq[Int]): Reply = {
    val builder = new BinaryBuilder(offsetWidth = 4)
    values.foreach(builder.put)
    val column = builder.finish()
    val batch: ArrowRecordBatch =
      try ColumnSet.recordBatch(values.length, Seq(column))
      finally column.close()
    Reply.batch(1, batch, rowEnds.toArray)
  }
}
