// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.{AttributeReference, Cast, EvalMode, Literal}
import org.apache.spark.sql.types._
import org.scalatest.funsuite.AnyFunSuite

class ArgumentCastSuite extends AnyFunSuite {

  private def changes(actual: String, declared: String): Boolean =
    ArgumentCast.changesValues(DataType.fromDDL(actual), DataType.fromDDL(declared))

  test("a cast that may drop digits or a time of day is the query's to write") {
    val dropping = Seq(
      "DOUBLE" -> "BIGINT",
      "FLOAT" -> "TINYINT",
      "DECIMAL(3, 1)" -> "INT",
      "DECIMAL(10, 4)" -> "DECIMAL(10, 2)",
      "DOUBLE" -> "DECIMAL(38, 10)",
      "DOUBLE" -> "FLOAT",
      "STRING" -> "DECIMAL(10, 2)",
      "TIMESTAMP" -> "DATE",
      "TIMESTAMP_NTZ" -> "DATE"
    )
    for ((actual, declared) <- dropping) {
      assert(changes(actual, declared), s"$actual as $declared")
      assert(changes(s"ARRAY<$actual>", s"ARRAY<$declared>"))
      assert(changes(s"MAP<INT, $actual>", s"MAP<INT, $declared>"))
      assert(changes(s"MAP<$actual, INT>", s"MAP<$declared, INT>"))
      assert(changes(s"STRUCT<a: INT, b: $actual>", s"STRUCT<a: INT, b: $declared>"))
    }
  }

  test("what widens, and what fails where it does not fit, is Spark's to cast") {
    val kept = Seq(
      "INT" -> "BIGINT",
      "BIGINT" -> "INT",
      "BIGINT" -> "DOUBLE",
      "INT" -> "DECIMAL(10, 2)",
      "DECIMAL(20, 0)" -> "BIGINT",
      "DECIMAL(3, 2)" -> "DOUBLE",
      "DECIMAL(3, 2)" -> "DECIMAL(2, 2)",
      "FLOAT" -> "DOUBLE",
      "STRING" -> "BIGINT",
      "STRING" -> "DOUBLE",
      "STRING" -> "DATE",
      "DATE" -> "TIMESTAMP",
      "VOID" -> "BIGINT",
      "BIGINT" -> "STRING"
    )
    for ((actual, declared) <- kept) {
      assert(!changes(actual, declared), s"$actual as $declared")
      assert(!changes(s"ARRAY<$actual>", s"ARRAY<$declared>"))
    }
  }

  test("Spark's casts fail where a value does not fit, and those of the query stay as they are") {
    val number = AttributeReference("number", LongType)()
    val legacy = Cast(number, IntegerType, None, EvalMode.LEGACY)
    assert(ArgumentCast.strict(legacy, LongType) == legacy.copy(evalMode = EvalMode.ANSI))
    assert(ArgumentCast.strict(legacy, IntegerType) == legacy)
    assert(ArgumentCast.strict(number, LongType) == number)
    assert(ArgumentCast.strict(Literal(1), IntegerType) == Literal(1))
  }
}
