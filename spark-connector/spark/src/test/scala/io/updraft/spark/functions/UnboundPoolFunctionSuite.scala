// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.functions

import java.io.ByteArrayOutputStream
import java.nio.channels.Channels

import scala.jdk.CollectionConverters._

import com.google.protobuf.ByteString
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.apache.spark.sql.types.{LongType, StructType}
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.proto.v1.{FunctionDescription, FunctionKind}

class UnboundPoolFunctionSuite extends AnyFunSuite {

  private val whole = schema("value")

  private def schema(name: String): ByteString = {
    val field = new Field(name, FieldType.notNullable(new ArrowType.Int(64, true)), null)
    val encoded = new ByteArrayOutputStream
    MessageSerializer.serialize(
      new WriteChannel(Channels.newChannel(encoded)),
      new Schema(Seq(field).asJava)
    )
    ByteString.copyFrom(encoded.toByteArray)
  }

  /** Return a function with a fault. `said` may set whether the fault is final. */
  private def unbound(
      kind: FunctionKind,
      said: FunctionDescription.Builder => FunctionDescription.Builder = identity
  ): UnboundPoolFunction = {
    val described = FunctionDescription
      .newBuilder()
      .setName("f")
      .setKind(kind)
      .setArgumentSchema(whole)
      .setResultSchema(whole)
      .setFault("no weights")
    UnboundPoolFunction.of("grpc://nowhere:1", said(described).build(), "")
  }

  private val one = new StructType().add("value", LongType)

  test("a function that no worker can load until it is loaded again is not called") {
    val scalar = unbound(FunctionKind.FUNCTION_KIND_SCALAR, _.setFaultIsFinal(true))
    val table = unbound(FunctionKind.FUNCTION_KIND_TABLE, _.setFaultIsFinal(true))
    for (call <- Seq[() => Any](() => scalar.bind(one), () => table.called)) {
      val refused = intercept[UnsupportedOperationException](call())
      assert(refused.getMessage == "f cannot be called now: no weights")
    }
    assert(scalar.description().contains("fault: no weights"))
  }

  test(
    "a function whose fault calls may take away is called, and so is one of a pool that does not say"
  ) {
    val scalar = unbound(FunctionKind.FUNCTION_KIND_SCALAR)
    assert(scalar.bind(one).isInstanceOf[PoolScalar])
    assert(unbound(FunctionKind.FUNCTION_KIND_AGGREGATE).bind(one).isInstanceOf[PoolAggregate])
    assert(unbound(FunctionKind.FUNCTION_KIND_TABLE).called.name == "f")
    assert(scalar.description().contains("unhealthy: no weights"))
  }

  test("a module that could not be imported says so, not that it accepts any columns") {
    val module = unbound(FunctionKind.FUNCTION_KIND_UNSPECIFIED, _.setFaultIsFinal(true))
    assert(module.description() == "Spark cannot call f: no weights")
    val any = unbound(FunctionKind.FUNCTION_KIND_UNSPECIFIED)
    assert(any.description().contains("it accepts any columns"))
  }
}
