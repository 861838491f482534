// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.execution.python

import org.apache.spark.sql.catalyst.expressions.Attribute

/** The columns of one input of a grouped function, and where its keys and values are among them, as
  * Spark itself finds it; visible only inside this package.
  *
  * @param attributes
  *   the columns that are sent, none twice
  * @param ordinals
  *   where they are in the rows of the child
  * @param arguments
  *   the numbers that PySpark's worker takes for arguments: a count, the count of keys, and the
  *   offsets of keys and values
  */
final case class GroupColumns(
    attributes: Seq[Attribute],
    ordinals: Seq[Int],
    arguments: Seq[Int]
)

object GroupColumns {

  /** `output` has the keys first, then the values, of which some may be the keys again. */
  def of(output: Seq[Attribute], keys: Seq[Attribute]): GroupColumns = {
    val (attributes, arguments) = PandasGroupUtils.resolveArgOffsets(output, keys)
    val values = keys.length until output.length
    val onlyKeys = attributes.dropRight(values.length)
    GroupColumns(
      attributes,
      onlyKeys.map(key => keys.indexWhere(key.semanticEquals)) ++ values,
      arguments.toSeq
    )
  }
}
