// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.types.StructType

/** Spark's own conversion of rows to Arrow, as a reference for tests. */
object Columns {

  def written(rows: Seq[InternalRow], schema: StructType): VectorSchemaRoot = {
    val arrow = ArrowSchemas.of(schema, "UTC", largeVarTypes = false)
    val root = VectorSchemaRoot.create(arrow, SparkInternals.allocator)
    val writer = ArrowWriter.create(root)
    rows.foreach(writer.write)
    writer.finish()
    root
  }
}
