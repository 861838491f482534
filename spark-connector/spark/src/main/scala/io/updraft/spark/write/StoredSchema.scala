// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.types.pojo.{Field, FieldType, Schema}
import org.apache.spark.sql.types._
import org.apache.spark.sql.updraft.{ArrowSchemas, SparkInternals}

/** Schema of the columns in files, for Spark and as the Arrow schema that the writer receives. */
object StoredSchema {

  /** Metadata keys of a field's Parquet id, in Spark and in Arrow. */
  private val SparkFieldId = "parquet.field.id"
  private val ArrowFieldId = "PARQUET:field_id"

  /** Metadata key in which Spark's ORC readers find a type that ORC itself lacks. */
  private val CatalystType = "spark.sql.catalyst.type"

  /** Return the schema with each type replaced by its storage type. */
  def of(schema: StructType): StructType =
    SparkInternals.storedType(schema).asInstanceOf[StructType]

  /** Return the Arrow schema; timestamps are in UTC on the wire, whatever the session's time zone.
    */
  def arrow(schema: StructType): Schema = {
    val plain = ArrowSchemas.of(of(schema), "UTC", largeVarTypes = false)
    new Schema(annotated(schema, plain.getFields.asScala.toSeq).asJava)
  }

  private def annotated(struct: StructType, fields: Seq[Field]): Seq[Field] =
    struct.fields.toSeq.zip(fields).map { case (spark, field) =>
      val id =
        if (spark.metadata.contains(SparkFieldId))
          Map(ArrowFieldId -> spark.metadata.getLong(SparkFieldId).toString)
        else Map.empty[String, String]
      annotated(spark.dataType, field, id)
    }

  private def annotated(dataType: DataType, field: Field, id: Map[String, String]): Field = {
    val metadata = id ++ catalystName(dataType).map(CatalystType -> _)
    val fieldType =
      new FieldType(field.isNullable, field.getType, field.getDictionary, metadata.asJava)
    new Field(field.getName, fieldType, children(dataType, field).asJava)
  }

  private def children(dataType: DataType, field: Field): Seq[Field] = {
    val plain = field.getChildren.asScala.toSeq
    dataType match {
      case struct: StructType => annotated(struct, plain)
      case ArrayType(element, _) => Seq(annotated(element, plain.head, Map.empty))
      case MapType(key, value, _) =>
        val pair = Seq(key, value).zip(plain.head.getChildren.asScala).map {
          case (part, partField) => annotated(part, partField, Map.empty)
        }
        Seq(new Field(plain.head.getName, plain.head.getFieldType, pair.asJava))
      case udt: UserDefinedType[_] => children(udt.sqlType, field)
      case _ => plain
    }
  }

  private def catalystName(dataType: DataType): Option[String] = dataType match {
    case TimestampType | TimestampNTZType => Some(dataType.typeName)
    case _: YearMonthIntervalType | _: DayTimeIntervalType => Some(dataType.typeName)
    case _: StringType => Some(StringType.typeName)
    case _ => None
  }

  /** Return the nested types of a type that are not structs, arrays or maps. */
  def leaves(dataType: DataType): Seq[DataType] = dataType match {
    case struct: StructType => struct.fields.toSeq.flatMap(field => leaves(field.dataType))
    case ArrayType(element, _) => leaves(element)
    case MapType(key, value, _) => leaves(key) ++ leaves(value)
    case udt: UserDefinedType[_] => leaves(udt.sqlType)
    case leaf => Seq(leaf)
  }

  /** Return whether a leaf type can be written in both formats. */
  def isWritten(leaf: DataType): Boolean = leaf match {
    case BooleanType | ByteType | ShortType | IntegerType | LongType | FloatType | DoubleType =>
      true
    // Spark allows negative scales only with a legacy setting; Parquet does not support them.
    case decimal: DecimalType => decimal.scale >= 0
    case _: StringType | BinaryType => true
    case DateType | TimestampType | TimestampNTZType => true
    case _: YearMonthIntervalType | _: DayTimeIntervalType => true
    case _ => false
  }
}
