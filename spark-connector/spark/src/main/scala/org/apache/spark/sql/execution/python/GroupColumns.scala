// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.execution.python

import org.apache.spark.sql.catalyst.expressions.Attribute

/** Columns of one input of a grouped function, and the positions of the keys and values, as Spark
  * itself resolves them. Spark's code that resolves them is visible only inside this package.
  *
  * @param attributes
  *   columns to send, without duplicates
  * @param ordinals
  *   positions of these columns in the child's rows
  * @param arguments
  *   numbers that PySpark's worker takes as arguments: how many numbers follow, the number of keys,
  *   and the offsets of keys and values
  */
final case class GroupColumns(
    attributes: Seq[Attribute],
    ordinals: Seq[Int],
    arguments: Seq[Int]
)

object GroupColumns {

  /** Return the columns. `output` contains the keys first, then the values. The values may include
    * keys.
    */
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
