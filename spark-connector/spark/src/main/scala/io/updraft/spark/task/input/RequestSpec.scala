// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.types.{DataType, StructField, StructType}
import org.apache.spark.sql.updraft.ArrowSchemas

import io.updraft.spark.columns.{BatchLimits, ColumnSet}

/** How requests are made of the child's rows. Made on the driver, serialized to the tasks.
  *
  * @param child
  *   the child's columns
  * @param copied
  *   those of them, by ordinal, that are sent or stay here
  * @param passed
  *   those that stay here, to be joined to the results
  * @param inputs
  *   the distinct arguments, in the order of the exchange's columns
  * @param limits
  *   where batches end
  */
final case class RequestSpec(
    child: Seq[Attribute],
    copied: Seq[Int],
    passed: Seq[Int],
    inputs: Seq[Expression],
    limits: BatchLimits,
    timeZone: String,
    largeVarTypes: Boolean
) {

  private val columns = copied.map(child)

  /** Where each argument comes from: copied columns first, computed ones behind them. */
  val slots: IndexedSeq[Int] = {
    val computedSlots = Iterator.from(copied.length)
    inputs.map(input => childColumn(input).getOrElse(computedSlots.next())).toIndexedSeq
  }

  /** The arguments that are not simply columns. */
  val computed: Seq[Expression] = inputs.filter(childColumn(_).isEmpty)

  val childTypes: Seq[DataType] = columns.map(_.dataType)

  val passedTypes: Seq[DataType] = passed.map(child(_).dataType)

  /** Where the columns that stay are among the copied. */
  val passedSlots: Seq[Int] = passed.map(copied.indexOf(_))

  val inputType: StructType = RequestSpec.numbered(inputs.map(_.dataType))

  def passedSchema: Schema = schemaOf(passedTypes)

  def inputSchema: Schema = schemaOf(inputs.map(_.dataType))

  /** Builds columns of these types from those at `ordinals` of rows and batches. */
  def columnSet(types: Seq[DataType], ordinals: Seq[Int]): ColumnSet =
    new ColumnSet(types, schemaOf(types), largeVarTypes, ordinals.toArray)

  /** Builds columns of these types from rows of just these columns. */
  def columnSet(types: Seq[DataType]): ColumnSet = columnSet(types, types.indices)

  private def schemaOf(types: Seq[DataType]): Schema =
    ArrowSchemas.of(RequestSpec.numbered(types), timeZone, largeVarTypes)

  private def childColumn(input: Expression): Option[Int] = input match {
    case column: Attribute => Some(columns.indexWhere(_.exprId == column.exprId)).filter(_ >= 0)
    case _ => None
  }
}

object RequestSpec {

  /** Columns of these types, named as the exchange names them. */
  def numbered(types: Seq[DataType]): StructType =
    StructType(types.zipWithIndex.map { case (dataType, i) => StructField(s"_$i", dataType) })
}
