// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.complex.StructVector
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch
import org.apache.arrow.vector.types.pojo.{Schema => ArrowSchema}
import org.apache.arrow.vector.{
  BaseFixedWidthVector,
  FieldVector,
  Float4Vector,
  Float8Vector,
  VectorLoader,
  VectorSchemaRoot
}
import org.apache.iceberg.types.Type.TypeID
import org.apache.iceberg.types.Types
import org.apache.iceberg.types.Types.NestedField
import org.apache.iceberg.{FieldMetrics, Schema}
import org.apache.spark.sql.updraft.SparkInternals

/** Counts of NaN, and bounds without NaN, of the floating-point columns of one file. Parquet's
  * footers contain neither. As in Iceberg's own writer, elements of lists and maps are left out,
  * and a struct that is null counts as a null of each column inside.
  */
final class FloatBounds(schema: Schema, arrow: ArrowSchema) {
  private[this] val columns = FloatBounds.columns(schema.columns().asScala.toSeq, Nil)

  def add(batch: ArrowRecordBatch): Unit = if (columns.nonEmpty) {
    val root = VectorSchemaRoot.create(arrow, SparkInternals.allocator)
    try {
      new VectorLoader(root).load(batch)
      val vectors = root.getFieldVectors.asScala.toIndexedSeq
      columns.foreach(_.add(vectors))
    } finally root.close()
  }

  def metrics: Seq[FieldMetrics[_]] = columns.map(_.metrics)
}

object FloatBounds {

  private def columns(fields: Seq[NestedField], path: List[Int]): Seq[FloatColumn] =
    fields.zipWithIndex.flatMap { case (field, ordinal) =>
      field.`type`() match {
        case struct: Types.StructType => columns(struct.fields().asScala.toSeq, ordinal :: path)
        case leaf if leaf.typeId() == TypeID.FLOAT || leaf.typeId() == TypeID.DOUBLE =>
          Seq(new FloatColumn(field, (ordinal :: path).reverse))
        case _ => Nil
      }
    }
}

/** Counts and bounds of one column.
  *
  * @param path
  *   ordinals that lead to the column through its structs, outermost first
  */
private final class FloatColumn(field: NestedField, path: List[Int]) {
  private[this] var values = 0L
  private[this] var nulls = 0L
  private[this] var nans = 0L
  private[this] var lower = Double.PositiveInfinity
  private[this] var upper = Double.NegativeInfinity

  def add(vectors: IndexedSeq[FieldVector]): Unit = {
    val structs = path.init.scanLeft(Option.empty[FieldVector]) { (outer, ordinal) =>
      Some(child(outer, vectors, ordinal))
    }.flatten
    val leaf = child(structs.lastOption, vectors, path.last).asInstanceOf[BaseFixedWidthVector]
    var row = 0
    while (row < leaf.getValueCount) {
      if (leaf.isNull(row) || structs.exists(_.isNull(row))) nulls += 1
      else add(value(leaf, row))
      row += 1
    }
  }

  private def child(
      outer: Option[FieldVector],
      columns: IndexedSeq[FieldVector],
      ordinal: Int
  ): FieldVector = outer match {
    case Some(struct: StructVector) => struct.getChildByOrdinal(ordinal).asInstanceOf[FieldVector]
    case _ => columns(ordinal)
  }

  private def value(leaf: BaseFixedWidthVector, row: Int): Double = leaf match {
    case single: Float4Vector => single.get(row).toDouble
    case double: Float8Vector => double.get(row)
    case other => throw new IllegalStateException(s"$field is a ${other.getMinorType}")
  }

  private def add(value: Double): Unit = {
    values += 1
    if (value.isNaN) nans += 1
    else {
      // Unlike `<`, `compare` distinguishes -0.0 from 0.0.
      if (java.lang.Double.compare(value, lower) < 0) lower = value
      if (java.lang.Double.compare(value, upper) > 0) upper = value
    }
  }

  def metrics: FieldMetrics[_] = {
    def bound(value: Double): Any =
      if (values == nans) null
      else if (field.`type`().typeId() == TypeID.FLOAT) Float.box(value.toFloat)
      else Double.box(value)
    new FieldMetrics[Any](
      field.fieldId(),
      values + nulls,
      nulls,
      nans,
      bound(lower),
      bound(upper),
      field.`type`()
    )
  }
}
