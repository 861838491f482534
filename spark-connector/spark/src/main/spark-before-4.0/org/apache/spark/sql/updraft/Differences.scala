// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.api.python.PythonAccumulatorV2
import org.apache.spark.rdd.InputFileBlockHolder
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction
import org.apache.spark.sql.catalyst.expressions.{Expression, PythonUDTF}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.execution.metric.SQLMetrics
import org.apache.spark.sql.execution.python.UserDefinedPythonTableFunction
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{DataType, StringType, StructType}
import org.apache.spark.{SparkContext, SparkException}

/** PySpark settings introduced in Spark 4.0, with the values that match the behavior of 3.5. */
object SessionConf {

  /** Return the number of rows in a pickled list of a UDF's arguments. */
  def pickledRows(conf: SQLConf): Int = 100

  /** Return no limit. */
  def arrowBytesPerBatch(conf: SQLConf): Long = Long.MaxValue

  def hidesTraceback(conf: SQLConf): Boolean = false

  /** Return no profiler. In Spark 3.5, the pickle of a profiled function contains its profiler. */
  def profiler(conf: SQLConf): Option[String] = None
}

/** Stock metrics of Python operators: their names and descriptions. Spark 3.5 does not measure
  * times, so the times of a pool have the descriptions of 4.0.
  */
object PythonMetrics {

  def sizes: Map[String, String] = Map(
    "pythonDataSent" -> "data sent to Python workers",
    "pythonDataReceived" -> "data returned from Python workers"
  )

  def timings: Map[String, String] = Map(
    "pythonBootTime" -> "time to start Python workers",
    "pythonInitTime" -> "time to initialize Python workers",
    "pythonTotalTime" -> "time to run Python workers"
  )

  def counts: Map[String, String] = Map("pythonNumRowsReceived" -> "number of output rows")
}

object PythonAccumulators {

  /** Destination of the accumulator updates of Python functions. */
  type Updates = PythonAccumulatorV2
}

/** Arguments of Spark's method that pickles rows. In Spark 3.5, the method makes lists of 100 rows.
  */
object PickledLists {
  def arguments(rows: Iterator[InternalRow], schema: StructType, listRows: Int): Seq[AnyRef] =
    Seq[AnyRef](rows, schema)
}

/** Parts of a table function that Spark has since 4.0. */
object TableFunctions {

  def partitionIndexes(udtf: PythonUDTF): Seq[Int] = Seq.empty

  def analyzeResult(udtf: PythonUDTF): Option[Array[Byte]] = None

  def call(
      session: SparkSession,
      function: UserDefinedPythonTableFunction,
      arguments: Seq[Expression]
  ): LogicalPlan = function.builder(arguments)
}

/** Collations of strings. Spark 3.5 does not support collations: it compares bytes. */
object Collations {

  def isCollated(dataType: DataType): Boolean = false

  /** Return whether strings of this type are equal if and only if their bytes are. */
  def isBinaryStable(text: StringType): Boolean = true

  /** Return whether results of these types fit the functions' declarations. */
  def sameTypes(declared: Seq[DataType], actual: Seq[DataType]): Boolean = declared == actual
}

/** The variant type, which Spark 3.5 does not have. */
object Variants {
  def isVariant(dataType: DataType): Boolean = false
}

/** Properties that Spark 4.0 renamed or introduced. */
object Renamed {

  /** Return whether an error means that a job was cancelled. In Spark 3.5, such an error has no
    * error condition.
    */
  def isCancellation(error: Throwable): Boolean = error match {
    case failed: SparkException =>
      failed.getErrorClass == null &&
      Option(failed.getMessage).exists(_.matches("(?s)Job \\d+ cancelled.*"))
    case _ => false
  }

  /** Return false: in Spark 3.5, internal functions have one-part names that belong to Spark. */
  def isInternal(call: UnresolvedFunction): Boolean = false
}

/** This thread's variable with the current file block. Spark 3.5 has no method that returns or
  * replaces it.
  */
object FileOfThread {
  private val variables = {
    val field = InputFileBlockHolder.getClass.getDeclaredField("inputBlock")
    field.setAccessible(true)
    field.get(InputFileBlockHolder).asInstanceOf[ThreadLocal[AnyRef]]
  }

  def get: AnyRef = variables.get()

  def set(variable: AnyRef): Unit = variables.set(variable)
}

/** Metrics that the driver reports for a write. Spark 3.5 does not ask a write for them. */
object DriverMetrics {

  /** Show the values in the query that this thread runs. */
  def report(context: SparkContext, values: Seq[CustomTaskMetric]): Unit = for {
    execution <- Option(context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY))
    query <- Option(SQLExecution.getQueryExecution(execution.toLong))
  } {
    val shown = for {
      value <- values
      metric <- query.executedPlan.flatMap(_.metrics.get(value.name()))
    } yield {
      metric.set(value.value())
      metric
    }
    SQLMetrics.postDriverMetricUpdates(context, execution, shown)
  }
}
