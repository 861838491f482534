// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import com.google.protobuf.ByteString
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.aggregate.{
  AggregateExpression,
  Count,
  Max,
  Min,
  Sum
}
import org.apache.spark.sql.catalyst.expressions.{
  Attribute,
  AttributeReference,
  CaseWhen,
  CreateNamedStruct,
  Expression,
  IsNull,
  Literal,
  StructsToJson
}
import org.apache.spark.sql.types._
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.proto.v1.{Bound, ColumnStatistics, ParquetOptions, Rebase, Receipt}

class ReceiptStatisticsSuite extends AnyFunSuite {

  private def nulls(column: Expression): AggregateExpression =
    Sum(CaseWhen(Seq(IsNull(column) -> Literal(1)), Literal(0))).toAggregateExpression()

  /** Return the sources of statistics as Delta defines them for these columns. */
  private def sources(columns: Seq[Attribute], options: ParquetOptions): StatisticsSources = {
    val fields = columns.flatMap { column =>
      Seq(
        s"${column.name} min" -> Min(column).toAggregateExpression(),
        s"${column.name} max" -> Max(column).toAggregateExpression(),
        s"${column.name} nulls" -> nulls(column)
      )
    }
    val all = ("rows" -> Count(Literal(1)).toAggregateExpression()) +: fields
    val struct = CreateNamedStruct(all.flatMap { case (name, value) => Seq(Literal(name), value) })
    new StatisticsSources(
      columns,
      StructsToJson(Map.empty, struct, Some("UTC")).replacement,
      options
    )
  }

  private def bound: Bound.Builder = Bound.newBuilder().setExact(true)

  private def column(path: String, nulls: Long, minimum: Bound.Builder, maximum: Bound.Builder) =
    ColumnStatistics
      .newBuilder()
      .setPath(path)
      .setNulls(nulls)
      .setMinimum(minimum)
      .setMaximum(maximum)

  test("the receipt supplies the counts and bounds, and nothing looks at rows") {
    val columns = Seq(
      AttributeReference("i", IntegerType)(),
      AttributeReference("s", StringType)(),
      AttributeReference("d", DecimalType(9, 2))(),
      AttributeReference("day", DateType)()
    )
    val statistics = sources(columns, ParquetOptions.getDefaultInstance)
    val receipt = Receipt
      .newBuilder()
      .setRows(7)
      .addColumns(column("i", 2, bound.setInteger(-3), bound.setInteger(5)))
      .addColumns(
        column(
          "s",
          0,
          bound.setBinary(ByteString.copyFromUtf8("a")),
          bound.setBinary(ByteString.copyFromUtf8("é"))
        )
      )
      .addColumns(
        column(
          "d",
          0,
          bound.setDecimal(ByteString.copyFrom(Array[Byte](-1))),
          bound.setDecimal(ByteString.copyFrom(Array[Byte](1, 0)))
        )
      )
      // A column without any value.
      .addColumns(ColumnStatistics.newBuilder().setPath("day").setNulls(7))
      .build()
    val buffer = statistics.newBuffer()
    assert(buffer.numFields == 0)
    statistics.update(buffer, null)
    assert(
      statistics.json(buffer, receipt) ==
        """{"rows":7,"i min":-3,"i max":5,"i nulls":2,"s min":"a","s max":"é","s nulls":0,""" +
        """"d min":-0.01,"d max":2.56,"d nulls":0,"day nulls":7}"""
    )
  }

  test("what receipts do not have as Spark has it comes from the rows") {
    val columns =
      Seq(AttributeReference("f", DoubleType)(), AttributeReference("at", TimestampType)())
    val statistics = sources(columns, ParquetOptions.getDefaultInstance)
    val receipt = Receipt
      .newBuilder()
      .setRows(3)
      .addColumns(column("f", 1, bound.setFloating(-0.0), bound.setFloating(4)))
      .addColumns(ColumnStatistics.newBuilder().setPath("at"))
      .build()
    val (one, other) = (statistics.newBuffer(), statistics.newBuffer())
    statistics.update(one, InternalRow(0.0, 0L))
    statistics.update(other, InternalRow(9.5, 9L))
    statistics.update(one, InternalRow(Double.NaN, 2000000L))
    statistics.update(one, InternalRow(null, null))
    assert(
      statistics.json(one, receipt) ==
        """{"rows":3,"f min":0.0,"f max":"NaN","f nulls":1,""" +
        """"at min":"1970-01-01T00:00:00.000Z","at max":"1970-01-01T00:00:02.000Z","at nulls":1}"""
    )
  }

  test("a column whose name has a dot is not taken for a field of another one") {
    val columns = Seq(AttributeReference("a.b", LongType)())
    val statistics = sources(columns, ParquetOptions.getDefaultInstance)
    val buffer = statistics.newBuffer()
    statistics.update(buffer, InternalRow(3L))
    assert(
      statistics.json(buffer, Receipt.getDefaultInstance) ==
        """{"rows":1,"a.b min":3,"a.b max":3,"a.b nulls":0}"""
    )
  }

  test("bounds in another calendar are not used") {
    val day = AttributeReference("day", DateType)()
    val rebased = ParquetOptions.newBuilder().setRebase(Rebase.REBASE_LEGACY).build()
    assert(ReceiptValue.of(Min(day).toAggregateExpression(), rebased).isEmpty)
    assert(
      ReceiptValue.of(Min(day).toAggregateExpression(), ParquetOptions.getDefaultInstance).nonEmpty
    )
  }

  test("nulls of a list are not those of its elements") {
    val list = AttributeReference("l", ArrayType(IntegerType))()
    val options = ParquetOptions.getDefaultInstance
    assert(ReceiptValue.of(nulls(list), options).isEmpty)
  }
}
