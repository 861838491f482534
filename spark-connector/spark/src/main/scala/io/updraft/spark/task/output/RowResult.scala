// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import org.apache.spark.sql.types.DataType

/** What a function of the map family was declared to return.
  *
  * @param row
  *   the struct of a row
  * @param columns
  *   the operator's output
  * @param operation
  *   names the kind of function in errors
  * @param check
  *   what of replies is compared with it
  */
final case class RowResult(
    row: DataType,
    columns: Seq[DataType],
    operation: String,
    check: RowCheck
)

/** How strictly the rows of replies must be what was declared: as strictly as stock is. */
sealed trait RowCheck extends Serializable

object RowCheck {

  /** Every type and whether it may be null. */
  case object Types extends RowCheck

  /** That the columns can be read as the declared ones: Python has compared the rest. */
  case object Layout extends RowCheck

  /** Nothing (`spark.sql.execution.pyspark.arrow.validateSchema` is off). */
  case object Nothing extends RowCheck
}
