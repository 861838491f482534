// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, ArrayData, GenericArrayData, MapData}
import org.apache.spark.sql.execution.Vectors
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.funsuite.AnyFunSuite

class SelectedColumnSuite extends AnyFunSuite {
  private val chosen = Array(2, 0, 0, 1)

  private def text(value: String): UTF8String = UTF8String.fromString(value)

  private val values: Map[DataType, Seq[Any]] = Map(
    BooleanType -> Seq(true, null, false),
    ByteType -> Seq(1.toByte, null, 3.toByte),
    ShortType -> Seq(1.toShort, null, 3.toShort),
    IntegerType -> Seq(1, null, 3),
    LongType -> Seq(1L, null, 3L),
    FloatType -> Seq(1f, null, 3f),
    DoubleType -> Seq(1.0, null, 3.0),
    DecimalType(20, 2) -> Seq(Decimal("1.10"), null, Decimal("3.30")),
    StringType -> Seq(text("a"), null, text("c")),
    BinaryType -> Seq(Array[Byte](1), null, Array[Byte](3)),
    ArrayType(LongType) -> Seq(
      new GenericArrayData(Array(1L)),
      null,
      new GenericArrayData(Array(3L))
    ),
    MapType(StringType, LongType) -> Seq(
      ArrayBasedMapData(Array[Any](text("a")), Array[Any](1L)),
      null,
      ArrayBasedMapData(Array[Any](text("c")), Array[Any](3L))
    ),
    new StructType().add("a", LongType) -> Seq(InternalRow(1L), null, InternalRow(3L))
  )

  for ((dataType, column) <- values)
    test(s"${dataType.sql} is read at the row that was asked for") {
      val schema = new StructType().add("c", dataType)
      val source = Vectors.onHeap(column.map(InternalRow(_)), schema)
      try {
        val grouped = new SelectedColumn(source.column(0), chosen)
        val batch = new ColumnarBatch(Array[ColumnVector](grouped), chosen.length)
        val seen = chosen.indices.map(i => written(batch.getRow(i), dataType))
        assert(seen == chosen.toSeq.map(i => written(source.getRow(i), dataType)))
        assert(grouped.hasNull && grouped.numNulls() > 0)
      } finally source.close()
    }

  for ((dataType, column) <- values)
    test(s"${dataType.sql} is repeated from several columns") {
      val schema = new StructType().add("c", dataType)
      val sources = Seq(column, column.reverse).map(rows =>
        Vectors.onHeap(rows.map(InternalRow(_)), schema)
      )
      try {
        val places = Seq((1, 2), (0, 2), (1, 1), (1, 0), (0, 2))
        val repeated = new RepeatedColumn(
          sources.map(_.column(0)).toArray,
          places.map { case (source, row) => RepeatedColumn.place(source, row) }.toArray,
          () => ()
        )
        val batch = new ColumnarBatch(Array[ColumnVector](repeated), places.length)
        val seen = places.indices.map(i => written(batch.getRow(i), dataType))
        val expected = places.map { case (source, row) =>
          written(sources(source).getRow(row), dataType)
        }
        assert(seen == expected)
        assert(repeated.hasNull && repeated.numNulls() > 0)
      } finally sources.foreach(_.close())
    }

  private def written(row: InternalRow, dataType: DataType): String =
    if (row.isNullAt(0)) "null"
    else
      row.get(0, dataType) match {
        case bytes: Array[Byte] => bytes.mkString(" ")
        case array: ArrayData => array.toLongArray().mkString(" ")
        case map: MapData =>
          s"${map.keyArray().getUTF8String(0)} ${map.valueArray().getLong(0)}"
        case struct: InternalRow => struct.getLong(0).toString
        case value => value.toString
      }

  test("the source stays its owner's to close") {
    val source = Vectors.onHeap(Seq(InternalRow(7L)), new StructType().add("c", LongType))
    new SelectedColumn(source.column(0), Array(0, 0)).close()
    assert(source.column(0).getLong(0) == 7L)
    source.close()
  }
}
