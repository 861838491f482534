// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.lang.Double.longBitsToDouble

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, GenericArrayData}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.apache.spark.{SparkContext, TaskContext}
import org.scalatest.funsuite.AnyFunSuite

class DistinctTuplesSuite extends AnyFunSuite {

  private def text(value: String): UTF8String = UTF8String.fromString(value)

  private def array(values: Any*): GenericArrayData = new GenericArrayData(values.toArray[Any])

  private def map(keys: Any*)(values: Any*): ArrayBasedMapData =
    ArrayBasedMapData(keys.toArray[Any], values.toArray[Any])

  /** Values that a function can tell apart, by their type. */
  private val different: Map[DataType, Seq[Any]] = Map(
    DoubleType -> Seq(
      0.0,
      -0.0,
      longBitsToDouble(0x7ff8000000000000L),
      longBitsToDouble(0x7ff8000000000001L),
      null
    ),
    FloatType -> Seq(0f, -0f, Float.NaN, java.lang.Float.intBitsToFloat(0x7fc00001), null),
    DecimalType(9, 2) -> Seq(Decimal("1.10"), Decimal("-1.10"), Decimal("0.00"), null),
    DecimalType(38, 2) -> Seq(Decimal("1.10"), Decimal("-1.10"), Decimal("0.00"), null),
    StringType -> Seq(text(""), text("a"), text("A"), text("a "), text("a\u0000"), null),
    StringType("UTF8_LCASE") -> Seq(text("a"), text("A")),
    BinaryType -> Seq(Array.emptyByteArray, Array[Byte](0), Array[Byte](0, 0), null),
    BooleanType -> Seq(true, false, null),
    ByteType -> Seq(1.toByte, -1.toByte, null),
    ArrayType(LongType) -> Seq(array(), array(0L), array(null), array(0L, null), null),
    MapType(StringType, LongType) ->
      Seq(map()(), map(text("a"))(1L), map(text("a"))(null), map(text("b"))(1L), null),
    new StructType().add("x", LongType).add("y", StringType) -> Seq(
      InternalRow(0L, text("")),
      InternalRow(0L, null),
      InternalRow(null, text("")),
      null
    )
  )

  private def tuples(types: DataType*)(rows: Seq[Any]*): Seq[UnsafeRow] = {
    val projection = UnsafeProjection.create(types.toArray)
    rows.map(values => projection(InternalRow.fromSeq(values)).copy())
  }

  private def inTask[T: scala.reflect.ClassTag](body: TaskContext => T): T =
    LocalSpark(1L << 20) { session =>
      val context: SparkContext = session.sparkContext
      context.parallelize(Seq(1), 1).map(_ => body(TaskContext.get())).collect().head
    }

  private def placesOf(rows: Seq[UnsafeRow]): Seq[Long] = inTask(DistinctTuplesSuite.places(rows))

  test("values that a function can tell apart have places of their own, and equal bytes share one") {
    different.foreach { case (dataType, values) =>
      val once = tuples(dataType)(values.map(Seq(_)): _*)
      val places = placesOf(once ++ once)
      assert(places.take(once.length) == once.indices.map(_.toLong), dataType.sql)
      assert(places.drop(once.length) == places.take(once.length), dataType.sql)
    }
  }

  test("all arguments count") {
    val rows = tuples(LongType, StringType)(
      Seq(1L, text("a")),
      Seq(1L, text("b")),
      Seq(2L, text("a")),
      Seq(1L, text("a")),
      Seq(null, text("a"))
    )
    assert(placesOf(rows) == Seq(0, 1, 2, 0, 4))
  }

  test("functions without arguments have one tuple") {
    assert(placesOf(tuples()(Seq.empty, Seq.empty)) == Seq(0, 0))
  }

  test("an emptied table knows nothing and holds no memory") {
    val rows = tuples(LongType)(Seq(1L))
    val (before, after, place) = inTask(DistinctTuplesSuite.emptied(rows))
    assert(before > 0)
    assert(after == 0)
    assert(place == 7)
  }
}

/** Work of tasks. This object is outside the suite, because the suite cannot be serialized. */
private object DistinctTuplesSuite extends Serializable {

  /** Return the places of rows. If a row's tuple is new, its place is the row's number. */
  def places(rows: Seq[UnsafeRow]): TaskContext => Seq[Long] = { context =>
    val tuples = new DistinctTuples(context)
    try rows.zipWithIndex.map { case (row, number) => tuples.placeOf(row, number.toLong) }
    finally tuples.close()
  }

  def emptied(rows: Seq[UnsafeRow]): TaskContext => (Long, Long, Long) = { context =>
    val tuples = new DistinctTuples(context)
    try {
      tuples.placeOf(rows.head, 3)
      val before = tuples.bytes
      tuples.close()
      val after = tuples.bytes
      (before, after, tuples.placeOf(rows.head, 7))
    } finally tuples.close()
  }
}
