// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.execution

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.vectorized.{
  OffHeapColumnVector,
  OnHeapColumnVector,
  WritableColumnVector
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}

/** Batches like those of Spark's scans, as input for tests. */
object Vectors {

  def onHeap(rows: Seq[InternalRow], schema: StructType): ColumnarBatch =
    fill(
      OnHeapColumnVector.allocateColumns(rows.length, schema).toArray[WritableColumnVector],
      rows,
      schema
    )

  def offHeap(rows: Seq[InternalRow], schema: StructType): ColumnarBatch =
    fill(
      OffHeapColumnVector.allocateColumns(rows.length, schema).toArray[WritableColumnVector],
      rows,
      schema
    )

  private def fill(
      vectors: Array[WritableColumnVector],
      rows: Seq[InternalRow],
      schema: StructType
  ): ColumnarBatch = {
    val converter = new RowToColumnConverter(schema)
    rows.foreach(converter.convert(_, vectors))
    new ColumnarBatch(vectors.toArray[ColumnVector], rows.length)
  }
}
