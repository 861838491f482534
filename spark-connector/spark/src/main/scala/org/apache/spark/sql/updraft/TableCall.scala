// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.python.UserDefinedPythonTableFunction
import org.apache.spark.sql.types.StructType

/** Call of a registered table function in the place of a pickled one. */
object TableCall {

  def of(
      session: SparkSession,
      called: CalledFunction,
      rows: StructType,
      arguments: Seq[Expression],
      deterministic: Boolean
  ): LogicalPlan = new UserDefinedPythonTableFunction(
    called.fullName,
    called,
    rows,
    PythonEvalType.SQL_ARROW_TABLE_UDF,
    deterministic
  ).builder(arguments, session.sessionState.sqlParser)
}
