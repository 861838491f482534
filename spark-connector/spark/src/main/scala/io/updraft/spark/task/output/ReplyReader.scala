// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.ipc.message.ArrowRecordBatch
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.updraft.{ResultTypes, SparkInternals}
import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.Reply
import io.updraft.spark.columns.{ColumnSet, ResultColumns}

/** Declared return type of a function of the map family.
  *
  * @param row
  *   struct of a row
  * @param columns
  *   types of the operator's output columns
  * @param required
  *   for each column, whether it is declared to have no nulls
  * @param operation
  *   name of the kind of function in errors
  * @param check
  *   parts of the declaration that replies are compared with
  */
final case class RowResult(
    row: DataType,
    columns: Seq[DataType],
    required: Seq[Boolean],
    operation: String,
    check: RowCheck
)

/** Strictness of the comparison of replies with the declaration. Stock Spark compares just as
  * strictly.
  */
sealed trait RowCheck extends Serializable

object RowCheck {

  /** Compare every type and its nullability. */
  case object Types extends RowCheck

  /** Check only that the columns can be read as the declared types. PySpark's worker has already
    * compared everything else.
    */
  case object Layout extends RowCheck

  /** Check nothing (`spark.sql.execution.pyspark.arrow.validateSchema` is off). */
  case object Nothing extends RowCheck
}

/** Reader of replies as columns of the operator's output. If the types of the columns are not as
  * declared, the reader raises the same error as stock Spark.
  */
trait ReplyReader {

  /** Return the columns of a reply, which the caller closes.
    *
    * @param rows
    *   required number of rows
    * @param schema
    *   schema of the exchange's results
    */
  def read(reply: Reply, rows: Int, schema: Schema): Array[ColumnVector]
}

object ReplyReader {

  /** Reader of columns with exactly the declared types. `operation` names the kind of function in
    * errors.
    */
  sealed abstract class Typed(resultTypes: Seq[DataType], operation: String) extends ReplyReader {
    protected final val declared: Seq[DataType] =
      resultTypes.map(SparkInternals.withoutUserDefined)
    private[this] var checked: Schema = _

    /** Return the function's columns in the schema of the exchange's results. */
    protected def columns(schema: Schema): Schema = schema

    protected final def check(schema: Schema): Unit = if (schema ne checked) {
      val actual = columns(schema).getFields.asScala.map(SparkInternals.sparkType).toSeq
      if (!SparkInternals.sameTypes(declared, actual)) {
        throw ResultTypes.mismatch(operation, declared, actual)
      }
      checked = schema
    }
  }

  /** Reader for one-to-one functions: a column for each UDF. */
  final class OfColumns(resultTypes: Seq[DataType]) extends Typed(resultTypes, "pandas_udf()") {

    override def read(reply: Reply, rows: Int, schema: Schema): Array[ColumnVector] = {
      check(schema)
      ColumnSet.load(reply.batch(), declared, schema)
    }
  }

  /** Reader for the map family: one struct column, whose fields are the output. */
  final class OfRows(result: RowResult) extends ReplyReader {
    private[this] val declaredColumns = result.columns.map(SparkInternals.withoutUserDefined)
    private[this] var checked: Schema = _

    override def read(reply: Reply, rows: Int, schema: Schema): Array[ColumnVector] = {
      if (schema ne checked) check(schema)
      val columns = fieldsOf(reply.batch())
      try load(columns, fieldsOf(schema))
      finally columns.close()
    }

    /** Load the columns. If their types are unchecked, read the columns through Arrow's own
      * accessors, which do not rely on the declared types.
      */
    private def load(columns: ArrowRecordBatch, fields: Schema): Array[ColumnVector] =
      if (result.check == RowCheck.Nothing)
        ColumnSet.loadUntyped(columns, fields).take(declaredColumns.length)
      else withValues(ColumnSet.load(columns, declaredColumns, fields), result.required)

    private def check(schema: Schema): Unit = {
      val actual = SparkInternals.sparkType(schema.getFields.get(0))
      if (!isAccepted(actual)) {
        throw ResultTypes.mismatch(result.operation, Seq(result.row), Seq(actual))
      }
      checked = schema
    }

    private def isAccepted(actual: DataType): Boolean = (result.check, actual) match {
      case (RowCheck.Nothing, _) => true
      case (RowCheck.Types, _) => SparkInternals.compatibleRow(actual, result.row)
      case (RowCheck.Layout, StructType(fields)) =>
        fields.length == declaredColumns.length &&
        fields.map(_.dataType).zip(declaredColumns).forall { case (found, declared) =>
          ResultColumns.reads(found, declared)
        }
      case _ => false
    }
  }

  /** Reader for table functions: one struct column, whose fields are the function's output.
    *
    * @param required
    *   for each field, whether it is declared to have no nulls
    */
  final class OfTable(resultTypes: Seq[DataType], required: Seq[Boolean])
      extends Typed(resultTypes, "Python UDTF") {

    override protected def columns(schema: Schema): Schema = fieldsOf(schema)

    override def read(reply: Reply, rows: Int, schema: Schema): Array[ColumnVector] = {
      check(schema)
      val fields = fieldsOf(reply.batch())
      try withValues(ColumnSet.load(fields, declared, columns(schema)), required)
      finally fields.close()
    }
  }

  /** Return the columns, or raise Arrow's own error for a null in a required column. Generated code
    * does not ask such a column for nulls, and our columns read values without a null check.
    */
  private def withValues(
      columns: Array[ColumnVector],
      required: Seq[Boolean]
  ): Array[ColumnVector] = {
    if (
      columns.zip(required).exists { case (column, isRequired) => isRequired && column.hasNull }
    ) {
      columns.foreach(_.close())
      throw new IllegalStateException("Value at index is null")
    }
    columns
  }

  private def fieldsOf(schema: Schema): Schema = new Schema(schema.getFields.get(0).getChildren)

  /** Return the batch without the struct around its columns. The new batch has one node and one
    * buffer fewer.
    */
  private def fieldsOf(batch: ArrowRecordBatch): ArrowRecordBatch = new ArrowRecordBatch(
    batch.getLength,
    batch.getNodes.asScala.tail.asJava,
    batch.getBuffers.asScala.tail.asJava
  )
}
