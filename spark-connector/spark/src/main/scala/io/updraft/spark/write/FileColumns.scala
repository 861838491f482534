// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.types.{DataType, StructType}

/** Columns of a file: the types of a row's values, and the Arrow schema that the writer receives.
  */
final case class FileColumns(types: Seq[DataType], arrow: Schema)

object FileColumns {

  /** Return the columns of files that have Spark's own layout. */
  def of(schema: StructType): FileColumns =
    FileColumns(StoredSchema.of(schema).fields.toSeq.map(_.dataType), StoredSchema.arrow(schema))
}
