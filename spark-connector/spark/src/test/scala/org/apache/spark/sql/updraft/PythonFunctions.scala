// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.util.Collections

import scala.jdk.CollectionConverters._

import org.apache.spark.api.python.SimplePythonFunction
import org.apache.spark.sql.catalyst.expressions.{Expression, PythonUDF, PythonUDTF}
import org.apache.spark.sql.types.{DataType, StructType}

/** Python functions for tests of plans; they need no Python. */
object PythonFunctions {

  def udf(
      name: String,
      dataType: DataType,
      arguments: Seq[Expression],
      evalType: Int,
      variables: Map[String, String] = Map.empty
  ): PythonUDF =
    PythonUDF(
      name,
      function(name, variables),
      dataType,
      arguments,
      evalType,
      udfDeterministic = true
    )

  def tableFunction(dataType: DataType): PythonUDTF = PythonUDTF(
    "t",
    function("t", Map.empty),
    new StructType().add("c", dataType),
    None,
    Nil,
    0,
    udfDeterministic = true
  )

  private def function(name: String, variables: Map[String, String]): SimplePythonFunction =
    SimplePythonFunction(
      name.getBytes.toSeq,
      variables.asJava,
      Collections.emptyList(),
      "python3",
      "3.11",
      Collections.emptyList(),
      null
    )
}
