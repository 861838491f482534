// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.types.{DataType, StructField, StructType}
import org.apache.spark.sql.updraft.ArrowSchemas

import io.updraft.spark.columns.{BatchLimits, ColumnSet}

/** Specification of how to build requests from the child's rows. Made on the driver, serialized to
  * the tasks.
  *
  * @param child
  *   columns of the child
  * @param copied
  *   ordinals of the columns that are sent to the pool, stay in the executor, or both
  * @param passed
  *   ordinals of the columns that stay in the executor, to be joined to the results
  * @param inputs
  *   distinct arguments, in the order of the exchange's columns
  * @param limits
  *   limits that end a batch
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

  private val copiedColumns = copied.map(child)

  /** Position of each argument in the list of copied columns followed by computed columns. */
  val slots: IndexedSeq[Int] = {
    val computedSlots = Iterator.from(copied.length)
    inputs.map(input => childColumn(input).getOrElse(computedSlots.next())).toIndexedSeq
  }

  /** Arguments that are not plain columns. */
  val computed: Seq[Expression] = inputs.filter(childColumn(_).isEmpty)

  /** Return the columns of a request: the copied columns, then the computed columns. */
  def columns: Seq[Expression] = copiedColumns ++ computed

  val childTypes: Seq[DataType] = copiedColumns.map(_.dataType)

  val passedTypes: Seq[DataType] = passed.map(child(_).dataType)

  /** Positions, among the copied columns, of the columns that stay in the executor. */
  val passedSlots: Seq[Int] = passed.map(copied.indexOf(_))

  val inputType: StructType = RequestSpec.numbered(inputs.map(_.dataType))

  def passedSchema: Schema = schemaOf(passedTypes)

  def inputSchema: Schema = schemaOf(inputs.map(_.dataType))

  /** Return columns of these types, to be filled from the columns at `ordinals` of rows and
    * batches.
    */
  def columnSet(types: Seq[DataType], ordinals: Seq[Int]): ColumnSet =
    new ColumnSet(types, schemaOf(types), largeVarTypes, ordinals.toArray)

  /** Return columns of these types, to be filled from rows that have exactly these columns. */
  def columnSet(types: Seq[DataType]): ColumnSet = columnSet(types, types.indices)

  private def schemaOf(types: Seq[DataType]): Schema =
    ArrowSchemas.of(RequestSpec.numbered(types), timeZone, largeVarTypes)

  private def childColumn(input: Expression): Option[Int] = input match {
    case column: Attribute =>
      Some(copiedColumns.indexWhere(_.exprId == column.exprId)).filter(_ >= 0)
    case _ => None
  }
}

object RequestSpec {

  /** Return a struct of columns of these types, with the exchange's names. */
  def numbered(types: Seq[DataType]): StructType =
    StructType(types.zipWithIndex.map { case (dataType, i) => StructField(s"_$i", dataType) })
}
