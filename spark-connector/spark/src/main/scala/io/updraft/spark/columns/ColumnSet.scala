// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.arrow.vector.ipc.message.{ArrowFieldNode, ArrowRecordBatch}
import org.apache.arrow.vector.types.pojo.{Field, Schema}
import org.apache.arrow.vector.{FieldVector, VectorLoader, VectorSchemaRoot}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types._
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}

/** Columns of a batch while it is being filled from rows or from the batches of a columnar child.
  *
  * @param ordinals
  *   position of each column in the source rows and batches
  */
final class ColumnSet(
    types: Seq[DataType],
    schema: Schema,
    largeVarTypes: Boolean,
    ordinals: Array[Int]
) extends AutoCloseable {

  /** Create columns to be filled from rows that have exactly these columns. */
  def this(types: Seq[DataType], schema: Schema, largeVarTypes: Boolean) =
    this(types, schema, largeVarTypes, types.indices.toArray)

  private[this] val builders: Array[ColumnBuilder] =
    types.zip(schema.getFields.asScala).map { case (dataType, field) =>
      ColumnBuilders.of(dataType, field, largeVarTypes)
    }.toArray

  // Blocks do not help with a single column: calling the builder for each value is just as fast.
  private[this] val fillsBlocks = builders.length > 1
  // Appended rows that are not in the builders yet.
  private[this] var copies: RowCopies = _

  /** Return the builders of the columns, to be filled one value at a time. */
  def columns: Array[ColumnBuilder] = builders

  /** Copy rows `from` until `from + count` of a batch. */
  def append(batch: ColumnarBatch, from: Int, count: Int): Unit = {
    takeCopies()
    var i = 0
    while (i < builders.length) {
      builders(i).append(batch.column(ordinals(i)), from, count)
      i += 1
    }
  }

  /** Copy one row. */
  def append(row: InternalRow): Unit = row match {
    case unsafe: UnsafeRow if fillsBlocks && unsafe.getSizeInBytes <= ColumnSet.LargestBlockedRow =>
      if (copies == null) copies = new RowCopies(unsafe.numFields())
      if (!copies.hasRoomFor(unsafe)) takeCopies()
      copies.add(unsafe)
    case _ =>
      takeCopies()
      appendAlone(row)
  }

  private def appendAlone(row: InternalRow): Unit = {
    var i = 0
    while (i < builders.length) {
      builders(i).append(row, ordinals(i))
      i += 1
    }
  }

  private def takeCopies(): Unit = if (copies != null && copies.count > 0) {
    var i = 0
    while (i < builders.length) {
      builders(i).append(copies, ordinals(i))
      i += 1
    }
    copies.clear()
  }

  /** Return the bytes that the columns accepted by `chosen` had at the last [[measure]]. */
  def byteCount(chosen: Int => Boolean): Long = {
    var sum = 0L
    var i = 0
    while (i < builders.length) {
      if (chosen(i)) sum += builders(i).byteCount
      i += 1
    }
    sum
  }

  /** Update [[byteCount]]. */
  def measure(): Unit = {
    takeCopies()
    builders.foreach(_.measure())
  }

  /** Return the columns filled so far; the set is empty afterwards. */
  def finish(): Seq[FilledColumn] = {
    takeCopies()
    builders.toSeq.map(_.finish())
  }

  /** Return the columns as Spark vectors; the set is empty afterwards. */
  def load(rows: Int): Array[ColumnVector] = {
    val columns = finish()
    try ColumnSet.load(rows, columns, types, schema)
    finally columns.foreach(_.close())
  }

  override def close(): Unit = {
    if (copies != null) copies.clear()
    builders.foreach(_.close())
  }
}

/** Conversion of finished columns to batches and vectors. Batches and vectors hold their own
  * references to the buffers.
  */
object ColumnSet {

  /** Size of the largest row that is copied into a block. Larger rows have large values, and
    * copying large values twice costs more than calling each builder for each row.
    */
  private val LargestBlockedRow = 1024

  def recordBatch(rows: Int, columns: Seq[FilledColumn]): ArrowRecordBatch =
    new ArrowRecordBatch(
      rows,
      columns.flatMap(_.nodes).asJava,
      columns.flatMap(_.buffers).asJava
    )

  /** Return a batch with one struct column, without nulls, that contains the columns. */
  def structBatch(rows: Int, columns: Seq[FilledColumn]): ArrowRecordBatch =
    new ArrowRecordBatch(
      rows,
      (new ArrowFieldNode(rows.toLong, 0L) +: columns.flatMap(_.nodes)).asJava,
      (SparkInternals.allocator.getEmpty +: columns.flatMap(_.buffers)).asJava
    )

  /** Return the columns as Spark vectors. */
  def load(
      rows: Int,
      columns: Seq[FilledColumn],
      types: Seq[DataType],
      schema: Schema
  ): Array[ColumnVector] = {
    val batch = recordBatch(rows, columns)
    try load(batch, types, schema)
    finally batch.close()
  }

  /** Return the columns of a batch as Spark vectors. */
  def load(batch: ArrowRecordBatch, types: Seq[DataType], schema: Schema): Array[ColumnVector] =
    loadVectors(batch, schema)
      .zip(types)
      .map { case (vector, dataType) => ResultColumns.wrap(vector, dataType) }
      .toArray

  /** Return the columns of a batch whose types are unchecked. */
  def loadUntyped(batch: ArrowRecordBatch, schema: Schema): Array[ColumnVector] =
    loadVectors(batch, schema).map(new ArrowColumnVector(_)).toArray

  private def loadVectors(batch: ArrowRecordBatch, schema: Schema): Seq[FieldVector] = {
    val root = VectorSchemaRoot.create(schema, SparkInternals.allocator)
    try {
      new VectorLoader(root).load(batch)
      root.getFieldVectors.asScala.toSeq
    } catch {
      case NonFatal(e) =>
        root.close()
        throw e
    }
  }
}

/** Choice of the builder for a column's type. */
object ColumnBuilders {

  /** Return a builder for values of `dataType`; `field` is the same type in Arrow. */
  def of(dataType: DataType, field: Field, largeVarTypes: Boolean): ColumnBuilder = {
    val offsetWidth = if (largeVarTypes) 8 else 4
    dataType match {
      case BooleanType => new BooleanBuilder
      case ByteType => new ByteBuilder
      case ShortType => new ShortBuilder
      case IntegerType | DateType | _: YearMonthIntervalType => new IntBuilder
      case LongType | TimestampType | TimestampNTZType | _: DayTimeIntervalType =>
        new LongBuilder
      case FloatType => new FloatBuilder
      case DoubleType => new DoubleBuilder
      case decimal: DecimalType => new DecimalBuilder(decimal)
      case _: StringType => new StringBuilder(offsetWidth)
      case BinaryType => new BinaryBuilder(offsetWidth)
      case udt: UserDefinedType[_] => of(udt.sqlType, field, largeVarTypes)
      case _ => new NestedBuilder(field)
    }
  }
}
