// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.{
  Add,
  AttributeReference,
  Expression,
  Literal,
  NamedArgumentExpression
}
import org.apache.spark.sql.types.{IntegerType, LongType}
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.scalatest.funsuite.AnyFunSuite

class PythonCallSuite extends AnyFunSuite {
  private val a = AttributeReference("a", LongType)()
  private val b = AttributeReference("b", LongType)()

  private def udf(name: String, arguments: Expression*) =
    PythonFunctions.udf(name, LongType, arguments, EvalType.Pickled)

  test("an argument that several functions share travels once") {
    val call = PythonCall.of(Seq(udf("f", a, b), udf("g", b, Add(a, Literal(1L))), udf("h", a)))
    assert(call.inputs == Seq(a, b, Add(a, Literal(1L))))
    assert(call.udfs.map(_.arguments.map(_.offset)) == Seq(Seq(0, 1), Seq(1, 2), Seq(0)))
  }

  test("chained functions become one, innermost first") {
    val call = PythonCall.of(Seq(udf("outer", udf("inner", a))))
    assert(call.udfs.map(_.commands.map(new String(_))) == Seq(Seq("inner", "outer")))
    assert(call.inputs == Seq(a))
  }

  test("named arguments keep their names") {
    val call = PythonCall.of(Seq(udf("f", a, NamedArgumentExpression("key", b))))
    assert(call.udfs.head.arguments == Seq(CallArgument(0, None), CallArgument(1, Some("key"))))
  }

  test("columns in front of the arguments move them, and each function reads its own") {
    val begin = AttributeReference("begin", IntegerType)()
    val end = AttributeReference("end", IntegerType)()
    val call = PythonCall
      .of(Seq(udf("f", a, NamedArgumentExpression("key", b)), udf("g", a)))
      .after(Seq(begin, end), Seq(Seq(0, 1), Seq.empty))
    assert(call.inputs == Seq(begin, end, a, b))
    assert(
      call.udfs.map(_.arguments) == Seq(
        Seq(0, 1, 2).map(CallArgument(_, None)) :+ CallArgument(3, Some("key")),
        Seq(CallArgument(2, None))
      )
    )
  }
}
