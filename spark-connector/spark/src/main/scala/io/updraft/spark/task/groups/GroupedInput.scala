// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateOrdering
import org.apache.spark.sql.catalyst.expressions.{Ascending, Attribute, SortOrder}
import org.apache.spark.sql.types.{StructField, StructType}
import org.apache.spark.sql.updraft.{ArrowSchemas, InputFiles, SparkInternals}

import io.updraft.spark.task.input.{RequestBuilder, RequestSource, RequestSpec, TaskInput}

/** Input of a function over groups. Made on the driver, serialized to the tasks.
  *
  * @param spec
  *   specification of the columns to send
  * @param keys
  *   grouping keys among the child's columns
  * @param groupedRows
  *   method that makes the rows of each group contiguous
  * @param shape
  *   representation of a row in a request
  */
final case class GroupedInput(
    spec: RequestSpec,
    keys: Seq[Attribute],
    groupedRows: GroupedRows,
    shape: RowShape
) extends TaskInput {

  /** Return the schema of rows. The columns keep their own names, because the function sees them.
    */
  private def rowSchema: Schema = ArrowSchemas.of(
    StructType(spec.copied.map(spec.child).map(column =>
      StructField(column.name, column.dataType, column.nullable)
    )),
    spec.timeZone,
    spec.largeVarTypes
  )

  override def schema: Schema = shape match {
    case RowShape.Struct => SparkInternals.rowSchema(rowSchema)
    case RowShape.Columns => rowSchema
  }

  override def ofRows(
      rows: Iterator[InternalRow],
      files: InputFiles,
      partition: Int
  ): RequestSource =
    new GroupedFeed(() => groupedRows.of(rows), boundary, builder(partition), spec.limits, files)

  /** Return a builder of requests from a task's rows. */
  def builder(partition: Int): RequestBuilder = shape match {
    case RowShape.Struct =>
      new RequestBuilder.OfRows(spec, rowSchema, partition)
    case RowShape.Columns =>
      new RequestBuilder.OfColumns(spec, rowSchema, partition)
  }

  def boundary: OrderedBoundary = new OrderedBoundary(keys, spec.child)

  /** Return the ordering of rows that contain only the keys. */
  def keyOrdering: Ordering[InternalRow] =
    GenerateOrdering.generate(keys.map(SortOrder(_, Ascending)), keys)
}

/** Representation of rows in a request: one struct column that holds the row, or one column for
  * each column of the rows.
  */
sealed trait RowShape extends Serializable

object RowShape {
  case object Struct extends RowShape
  case object Columns extends RowShape
}
