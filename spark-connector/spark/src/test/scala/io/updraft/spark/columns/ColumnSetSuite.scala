// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import java.math.BigInteger

import scala.jdk.CollectionConverters._
import scala.util.Random

import org.apache.arrow.vector.compare.VectorEqualsVisitor
import org.apache.arrow.vector.{
  BaseVariableWidthVector,
  BigIntVector,
  BitVectorHelper,
  FieldVector,
  VarBinaryVector,
  VarCharVector,
  VectorSchemaRoot
}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, GenericArrayData}
import org.apache.spark.sql.execution.Vectors
import org.apache.spark.sql.types._
import org.apache.spark.sql.updraft.{ArrowSchemas, Columns, SparkInternals}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch}
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.Assertion
import org.scalatest.funsuite.AnyFunSuite

/** Comparison of our copies with Spark's ArrowWriter, for random data of each type and each kind of
  * source.
  */
class ColumnSetSuite extends AnyFunSuite {
  private val allocator = SparkInternals.allocator
  private val rowCount = 3000

  private val types: Seq[DataType] = Seq(
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType(7, 2),
    DecimalType(18, 6),
    DecimalType(38, 10),
    StringType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
    YearMonthIntervalType(),
    DayTimeIntervalType(),
    ArrayType(LongType),
    MapType(StringType, DoubleType),
    new StructType().add("a", IntegerType).add("b", ArrayType(StringType))
  )

  for (dataType <- types; nulls <- Seq("no", "some", "only"))
    test(s"${dataType.sql} with $nulls nulls is copied as Spark writes it, from every source") {
      val schema = StructType(Seq("_0", "_1").map(StructField(_, dataType)))
      val rows = randomRows(dataType, nulls, new Random(dataType.sql.hashCode))
      val before = allocator.getAllocatedMemory
      val expected = Columns.written(rows, schema)
      val arrow = expected.getFieldVectors.asScala.map(new ArrowColumnVector(_))
      val arrowBatch = new ColumnarBatch(arrow.toArray, rowCount)
      val onHeap = Vectors.onHeap(rows, schema)
      val offHeap = Vectors.offHeap(rows, schema)
      try {
        check(expected, schema)(rows.foreach(_))
        check(expected, schema)(unsafe(rows, schema).foreach(_))
        Seq(onHeap, offHeap, arrowBatch).foreach(check(expected, schema, _))
      } finally {
        onHeap.close()
        offHeap.close()
        expected.close()
      }
      assert(allocator.getAllocatedMemory == before)
    }

  test("rows of all types keep their order, whatever their size and wherever they lie") {
    val schema = StructType((0 until 70).map { i =>
      StructField(s"_$i", if (i == 3) StringType else types(i % types.length))
    })
    val random = new Random(70)
    val rows = (0 until rowCount).map { i =>
      // Some rows are too large to be copied into a block.
      val text = UTF8String.fromString("a" * (if (i % 100 == 99) 100000 else random.nextInt(40)))
      InternalRow.fromSeq(schema.map { field =>
        if (field.name == "_3") text
        else if (random.nextInt(9) == 0) null
        else value(field.dataType, random)
      })
    }
    val expected = Columns.written(rows, schema)
    try {
      val mixed = unsafe(rows, schema).zip(rows).zipWithIndex.map {
        case ((unsafe, row), i) => if (i % 7 == 0) row else unsafe
      }
      check(expected, schema)(mixed.foreach(_))
    } finally expected.close()
  }

  for (dataType <- Seq(StringType, BinaryType))
    test(s"${dataType.sql} values whose offsets leave the data are refused before they are copied") {
      for (offsets <- Seq(Seq(0, 5, 3, 8), Seq(-4, 0, 4, 8), Seq(0, 2, 4, 1 << 30))) {
        val vector = threeValues(dataType)
        offsets.zipWithIndex.foreach { case (offset, i) =>
          vector.getOffsetBuffer.setInt(i * 4L, offset)
        }
        intercept[IllegalStateException](copiedData(vector, dataType))
      }
    }

  test("bytes under a null stay where they are") {
    val strings = threeValues(StringType)
    BitVectorHelper.unsetBit(strings.getValidityBuffer, 1)
    assert(copiedData(strings, StringType) == "xxxx".getBytes.toSeq)
    val numbers = new BigIntVector("_0", allocator)
    numbers.allocateNew(3)
    (0 until 3).foreach(numbers.setSafe(_, 7L))
    numbers.setValueCount(3)
    BitVectorHelper.unsetBit(numbers.getValidityBuffer, 1)
    assert(copiedData(numbers, LongType).count(_ == 7) == 2)
  }

  /** Return the data of a column that was copied from a vector, and close the vector. */
  private def copiedData(vector: FieldVector, dataType: DataType): Seq[Byte] = {
    val schema = new StructType().add("_0", dataType)
    val set = new ColumnSet(Seq(dataType), ArrowSchemas.of(schema, "UTC", false), false)
    val batch = new ColumnarBatch(Array(new ArrowColumnVector(vector)), vector.getValueCount)
    try {
      set.append(batch, 0, batch.numRows())
      val columns = set.finish()
      val data = columns.head.buffers.last
      val bytes = new Array[Byte](data.readableBytes().toInt)
      data.getBytes(0L, bytes)
      columns.foreach(_.close())
      bytes.toSeq
    } finally {
      set.close()
      batch.close()
    }
  }

  private def threeValues(dataType: DataType): BaseVariableWidthVector = {
    val vector =
      if (dataType == StringType) new VarCharVector("_0", allocator)
      else new VarBinaryVector("_0", allocator)
    vector.allocateNew(8, 3)
    (0 until 3).foreach(vector.setSafe(_, Array.fill[Byte](2)('x')))
    vector.setValueCount(3)
    vector
  }

  test("the size of a set counts every row, and a closed set has none") {
    val schema = StructType(Seq("a", "b").map(StructField(_, LongType)))
    val rows = unsafe((0 until 5).map(i => InternalRow(i.toLong, -i.toLong)), schema)
    val set =
      new ColumnSet(Seq(LongType, LongType), ArrowSchemas.of(schema, "UTC", false), false)
    rows.foreach(set.append)
    set.measure()
    assert(set.byteCount(_ => true) == 5 * 16)
    rows.foreach(set.append)
    set.close()
    set.measure()
    assert(set.byteCount(_ => true) == 0)
  }

  private def check(expected: VectorSchemaRoot, schema: StructType)(
      each: (InternalRow => Unit) => Unit
  ): Assertion =
    compare(expected, schema)(set => each(set.append))

  private def check(
      expected: VectorSchemaRoot,
      schema: StructType,
      source: ColumnarBatch
  ): Assertion =
    compare(expected, schema) { set =>
      var from = 0
      while (from < rowCount) {
        val count = math.min(777, rowCount - from)
        set.append(source, from, count)
        from += count
      }
    }

  private def compare(expected: VectorSchemaRoot, schema: StructType)(
      fill: ColumnSet => Unit
  ): Assertion = {
    val set = new ColumnSet(schema.map(_.dataType), expected.getSchema, false)
    fill(set)
    val columns = set.finish()
    val copied = ColumnSet
      .load(rowCount, columns, schema.map(_.dataType), expected.getSchema)
      .map(_.asInstanceOf[ArrowColumnVector])
    try {
      for ((column, i) <- copied.zipWithIndex)
        assert(VectorEqualsVisitor.vectorEquals(column.getValueVector, expected.getVector(i)))
      assert(readBack(copied, schema) == readBack(
        expected.getFieldVectors.asScala.map(new ArrowColumnVector(_)).toArray,
        schema
      ))
    } finally {
      copied.foreach(_.close())
      columns.foreach(_.close())
      set.close()
    }
  }

  /** Return the rows as Spark's operators read them, through the columns' own accessors. */
  private def readBack(columns: Array[ArrowColumnVector], schema: StructType): Seq[InternalRow] = {
    val batch = new ColumnarBatch(columns.toArray, rowCount)
    val project = UnsafeProjection.create(schema)
    (0 until rowCount).map(i => project(batch.getRow(i)).copy())
  }

  private def unsafe(rows: Seq[InternalRow], schema: StructType): Seq[InternalRow] = {
    val project = UnsafeProjection.create(schema)
    rows.map(project(_).copy())
  }

  private def randomRows(dataType: DataType, nulls: String, random: Random): Seq[InternalRow] =
    Seq.fill(rowCount) {
      InternalRow.fromSeq(Seq.fill(2) {
        val isNull = nulls == "only" || (nulls == "some" && random.nextInt(5) == 0)
        if (isNull) null else value(dataType, random)
      })
    }

  private def value(dataType: DataType, random: Random): Any = dataType match {
    case BooleanType => random.nextBoolean()
    case ByteType => random.nextInt().toByte
    case ShortType => random.nextInt().toShort
    case IntegerType => random.nextInt()
    case DateType => random.nextInt(200000) - 100000
    case _: YearMonthIntervalType => random.nextInt()
    case FloatType => random.nextFloat()
    case DoubleType => random.nextGaussian()
    case decimal: DecimalType => randomDecimal(decimal, random)
    case StringType => UTF8String.fromString(random.nextString(random.nextInt(20)))
    case BinaryType => random.nextBytes(random.nextInt(30))
    case ArrayType(element, _) =>
      new GenericArrayData(Array.fill[Any](random.nextInt(4))(value(element, random)))
    case MapType(key, item, _) =>
      val size = random.nextInt(3)
      new ArrayBasedMapData(
        new GenericArrayData(Array.fill[Any](size)(value(key, random))),
        new GenericArrayData(Array.fill[Any](size)(value(item, random)))
      )
    case StructType(fields) =>
      InternalRow.fromSeq(fields.toSeq.map(field => value(field.dataType, random)))
    case _ => random.nextLong()
  }

  private def randomDecimal(decimal: DecimalType, random: Random): Decimal = {
    val unscaled = new BigInteger(120, random.self).mod(BigInteger.TEN.pow(decimal.precision))
    val signed = if (random.nextBoolean()) unscaled.negate() else unscaled
    Decimal(
      BigDecimal(BigInt(signed), decimal.scale),
      decimal.precision,
      decimal.scale
    )
  }
}
