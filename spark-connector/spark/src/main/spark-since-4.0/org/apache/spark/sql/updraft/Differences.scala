// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.rdd.InputFileBlockHolder
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction
import org.apache.spark.sql.catalyst.expressions.{Expression, PythonUDTF}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.util.UnsafeRowUtils
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.execution.python.{PythonSQLMetrics, UserDefinedPythonTableFunction}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{DataType, StringType, StructType, VariantType}
import org.apache.spark.util.CollectionAccumulator
import org.apache.spark.{SparkContext, SparkThrowable}

/** PySpark settings introduced in Spark 4.0. */
object SessionConf {

  /** Return the number of rows in a pickled list of a UDF's arguments. */
  def pickledRows(conf: SQLConf): Int = conf.getConf(SQLConf.PYTHON_UDF_MAX_RECORDS_PER_BATCH)

  def arrowBytesPerBatch(conf: SQLConf): Long = conf.arrowMaxBytesPerBatch

  def hidesTraceback(conf: SQLConf): Boolean = conf.pysparkHideTraceback

  /** Return the profiler of UDFs that the session has set. */
  def profiler(conf: SQLConf): Option[String] = conf.pythonUDFProfiler
}

/** Stock metrics of Python operators: their names and descriptions. */
object PythonMetrics {
  def sizes: Map[String, String] = PythonSQLMetrics.pythonSizeMetricsDesc
  def timings: Map[String, String] = PythonSQLMetrics.pythonTimingMetricsDesc
  def counts: Map[String, String] = PythonSQLMetrics.pythonOtherMetricsDesc
}

object PythonAccumulators {

  /** Destination of the accumulator updates of Python functions. */
  type Updates = CollectionAccumulator[Array[Byte]]
}

/** Arguments of Spark's method that pickles rows. */
object PickledLists {
  def arguments(rows: Iterator[InternalRow], schema: StructType, listRows: Int): Seq[AnyRef] =
    Seq[AnyRef](rows, schema, Int.box(listRows))
}

/** Parts of a table function that Spark has since 4.0. */
object TableFunctions {

  def partitionIndexes(udtf: PythonUDTF): Seq[Int] =
    udtf.pythonUDTFPartitionColumnIndexes.toSeq.flatMap(_.partitionChildIndexes)

  def analyzeResult(udtf: PythonUDTF): Option[Array[Byte]] = udtf.pickledAnalyzeResult

  def call(
      session: SparkSession,
      function: UserDefinedPythonTableFunction,
      arguments: Seq[Expression]
  ): LogicalPlan = function.builder(arguments, session.sessionState.sqlParser)
}

/** Collations of strings, introduced in Spark 4.0. */
object Collations {

  def isCollated(dataType: DataType): Boolean = dataType.existsRecursively {
    case text: StringType => text != StringType
    case _ => false
  }

  /** Return whether strings of this type are equal if and only if their bytes are. */
  def isBinaryStable(text: StringType): Boolean = UnsafeRowUtils.isBinaryStable(text)

  /** Return whether results of these types fit the functions' declarations. */
  def sameTypes(declared: Seq[DataType], actual: Seq[DataType]): Boolean =
    DataType.equalsIgnoreCompatibleCollation(declared, actual)
}

/** The variant type, introduced in Spark 4.0. */
object Variants {
  def isVariant(dataType: DataType): Boolean = dataType == VariantType
}

/** Properties that Spark 4.0 renamed or introduced. */
object Renamed {

  /** Return whether an error means that a job was cancelled. */
  def isCancellation(error: Throwable): Boolean = error match {
    case failed: SparkThrowable => failed.getCondition == "SPARK_JOB_CANCELLED"
    case _ => false
  }

  /** Return whether a function belongs to no namespace, because it is internal to Spark. */
  def isInternal(call: UnresolvedFunction): Boolean = call.isInternal
}

/** This thread's variable with the current file block. */
object FileOfThread {
  def get: AnyRef = InputFileBlockHolder.getThreadLocalValue()
  def set(variable: AnyRef): Unit = InputFileBlockHolder.setThreadLocalValue(variable)
}

/** Metrics that the driver reports for a write. */
object DriverMetrics {

  /** Do nothing: Spark asks the write for its metrics. */
  def report(context: SparkContext, values: Seq[CustomTaskMetric]): Unit = ()
}
