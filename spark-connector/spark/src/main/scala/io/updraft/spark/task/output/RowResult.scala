// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import org.apache.spark.sql.types.DataType

/** Declared return type of a function of the map family.
  *
  * @param row
  *   struct of a row
  * @param columns
  *   types of the operator's output columns
  * @param operation
  *   name of the kind of function in errors
  * @param check
  *   part of the declaration that replies are compared with
  */
final case class RowResult(
    row: DataType,
    columns: Seq[DataType],
    operation: String,
    check: RowCheck
)

/** Strictness of the comparison of replies with the declaration; the same as on stock Spark. */
sealed trait RowCheck extends Serializable

object RowCheck {

  /** Compare every type and its nullability. */
  case object Types extends RowCheck

  /** Check that the columns can be read as the declared types; Python has compared the rest. */
  case object Layout extends RowCheck

  /** Check nothing (`spark.sql.execution.pyspark.arrow.validateSchema` is off). */
  case object Nothing extends RowCheck
}
