// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.reasons

import org.apache.spark.sql.catalyst.expressions.{Expression, PythonFuncExpression}

/** Kind of Python function and where it runs.
  *
  * @param evalType
  *   PySpark's number of the kind
  * @param name
  *   PySpark's name of that number
  * @param usage
  *   notation in user code
  * @param since
  *   first Spark version with this kind, among the versions that the connector supports
  * @param fallbackReason
  *   reason why functions of this kind never run on the pool. None if the pool runs this kind;
  *   [[Support]] may still find a reason against a particular function
  */
final case class FunctionKind(
    evalType: Int,
    name: String,
    usage: String,
    since: String,
    fallbackReason: Option[FallbackReason]
)

/** All kinds in PySpark 3.5 to 4.3. This table decides where functions run, and
  * docs/reference/functions.md is generated from it.
  */
object FunctionKinds {
  import FallbackReason.{State, UnknownKind}

  val all: Seq[FunctionKind] = Seq(
    pool(100, "SQL_BATCHED_UDF", "`udf`, pickled", "3.5"),
    pool(101, "SQL_ARROW_BATCHED_UDF", "`udf` with `useArrow=True`", "3.5"),
    pool(200, "SQL_SCALAR_PANDAS_UDF", "`pandas_udf`, Series to Series", "3.5"),
    pool(204, "SQL_SCALAR_PANDAS_ITER_UDF", "`pandas_udf`, iterator of Series", "3.5"),
    pool(250, "SQL_SCALAR_ARROW_UDF", "`arrow_udf`, Array to Array", "4.1"),
    pool(251, "SQL_SCALAR_ARROW_ITER_UDF", "`arrow_udf`, iterator of Arrays", "4.1"),
    pool(205, "SQL_MAP_PANDAS_ITER_UDF", "`mapInPandas`", "3.5"),
    pool(207, "SQL_MAP_ARROW_ITER_UDF", "`mapInArrow`", "3.5"),
    pool(201, "SQL_GROUPED_MAP_PANDAS_UDF", "`applyInPandas`", "3.5"),
    pool(216, "SQL_GROUPED_MAP_PANDAS_ITER_UDF", "`applyInPandas`, iterators", "4.1"),
    pool(209, "SQL_GROUPED_MAP_ARROW_UDF", "`applyInArrow`", "4.0"),
    pool(215, "SQL_GROUPED_MAP_ARROW_ITER_UDF", "`applyInArrow`, iterators", "4.1"),
    pool(206, "SQL_COGROUPED_MAP_PANDAS_UDF", "`cogroup().applyInPandas`", "3.5"),
    pool(210, "SQL_COGROUPED_MAP_ARROW_UDF", "`cogroup().applyInArrow`", "4.0"),
    pool(202, "SQL_GROUPED_AGG_PANDAS_UDF", "`pandas_udf`, aggregate", "3.5"),
    pool(217, "SQL_GROUPED_AGG_PANDAS_ITER_UDF", "`pandas_udf`, aggregate, iterators", "4.2"),
    pool(252, "SQL_GROUPED_AGG_ARROW_UDF", "`arrow_udf`, aggregate", "4.1"),
    pool(254, "SQL_GROUPED_AGG_ARROW_ITER_UDF", "`arrow_udf`, aggregate, iterators", "4.2"),
    pool(203, "SQL_WINDOW_AGG_PANDAS_UDF", "`pandas_udf` over a window", "3.5"),
    pool(253, "SQL_WINDOW_AGG_ARROW_UDF", "`arrow_udf` over a window", "4.1"),
    pool(300, "SQL_TABLE_UDF", "`udtf`", "3.5"),
    pool(301, "SQL_ARROW_TABLE_UDF", "`udtf` with `useArrow=True`", "3.5"),
    pool(302, "SQL_ARROW_UDTF", "`arrow_udtf`", "4.1"),
    state(208, "SQL_GROUPED_MAP_PANDAS_UDF_WITH_STATE", "`applyInPandasWithState`", "3.5"),
    state(211, "SQL_TRANSFORM_WITH_STATE_PANDAS_UDF", "`transformWithStateInPandas`", "4.0"),
    state(
      212,
      "SQL_TRANSFORM_WITH_STATE_PANDAS_INIT_STATE_UDF",
      "`transformWithStateInPandas` with an initial state",
      "4.0"
    ),
    state(213, "SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF", "`transformWithState`", "4.1"),
    state(
      214,
      "SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_INIT_STATE_UDF",
      "`transformWithState` with an initial state",
      "4.1"
    )
  )

  private val byEvalType = all.map(kind => kind.evalType -> kind).toMap

  /** Map from a kind of aggregate outside a window to the same kind inside a window, both as
    * PySpark's numbers. Spark plans both kinds with the number of the first.
    */
  val inWindow: Map[Int, Int] = Map(202 -> 203, 252 -> 253)

  /** Return why functions in these expressions never run on the pool; None if all functions may. */
  def fallbackReason(expressions: Seq[Expression], isWindow: Boolean): Option[FallbackReason] = {
    val evalTypes = expressions.flatMap(_.collect { case f: PythonFuncExpression => f.evalType })
    evalTypes.map(of => if (isWindow) inWindow.getOrElse(of, of) else of).flatMap(ofKind).headOption
  }

  private def ofKind(evalType: Int): Option[FallbackReason] =
    byEvalType.get(evalType).fold(Option(UnknownKind.about(s"number $evalType")))(_.fallbackReason)

  private def pool(evalType: Int, name: String, usage: String, since: String): FunctionKind =
    FunctionKind(evalType, name, usage, since, None)

  private def state(evalType: Int, name: String, usage: String, since: String): FunctionKind =
    FunctionKind(evalType, name, usage, since, Some(State))
}
