// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import scala.jdk.CollectionConverters._

import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.types.pojo.ArrowType
import org.apache.arrow.vector.types.pojo.{Field, FieldType, Schema}
import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, PythonSQLMetrics}
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{DataType, UserDefinedType}
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.{JobArtifactSet, SparkContext, TaskContext, TaskKilledException}

/** What the connector needs of Spark that is visible only inside Spark's packages, and nothing
  * else. Objects beside this one that differ between Spark versions are in the folders
  * `spark-before-*` and `spark-since-*`.
  */
object SparkInternals {

  /** Where Arrow memory of the connector comes from; its books must balance when no task runs. */
  val allocator: BufferAllocator =
    ArrowUtils.rootAllocator.newChildAllocator("updraft", 0, Long.MaxValue)

  /** One struct column that holds a row, as the map family sends it. */
  def rowSchema(row: Schema): Schema = new Schema(
    Seq(
      new Field(
        "_0",
        new FieldType(true, ArrowType.Struct.INSTANCE, null),
        row.getFields
      )
    ).asJava
  )

  def sparkType(field: Field): DataType = ArrowUtils.fromArrowField(field)

  /** Stock's metrics of Python operators, under stock's names. */
  def pythonMetrics(context: SparkContext): Map[String, SQLMetric] = {
    import PythonSQLMetrics._
    pythonSizeMetricsDesc.map { case (key, text) =>
      key -> SQLMetrics.createSizeMetric(context, text)
    } ++ pythonTimingMetricsDesc.map { case (key, text) =>
      key -> SQLMetrics.createTimingMetric(context, text)
    } ++ pythonOtherMetricsDesc.map { case (key, text) =>
      key -> SQLMetrics.createMetric(context, text)
    }
  }

  /** The settings that PySpark's worker reads for the Arrow family, as Spark itself collects them;
    * the profiler is among them since 4.2.
    */
  def arrowRunnerConf(conf: SQLConf): Map[String, String] =
    ArrowPythonRunner.getPythonRunnerConfMap(conf) ++ pickledRunnerConf(conf)

  /** The same for pickled UDFs. */
  def pickledRunnerConf(conf: SQLConf): Map[String, String] =
    conf.pythonUDFProfiler.map(SQLConf.PYTHON_UDF_PROFILER.key -> _).toMap

  def addSpilled(context: TaskContext, memoryBytes: Long, diskBytes: Long): Unit = {
    context.taskMetrics().incMemoryBytesSpilled(memoryBytes)
    context.taskMetrics().incDiskBytesSpilled(diskBytes)
  }

  /** A logical node as the session's other strategies plan it. */
  def planByOthers(
      session: SparkSession,
      except: SparkStrategy,
      plan: LogicalPlan
  ): Seq[SparkPlan] =
    session.sessionState.planner.strategies.iterator
      .filter(_ != except)
      .map(_.apply(plan))
      .find(_.nonEmpty)
      .getOrElse(Nil)

  def jobArtifactUuid: Option[String] = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)

  def mapPartitions[T, R: scala.reflect.ClassTag](rdd: RDD[T])(
      compute: (Int, Iterator[T]) => Iterator[R]
  ): RDD[R] =
    rdd.mapPartitionsWithIndexInternal(compute)

  /** Kinds of functions, by PySpark's numbers. */
  object EvalType {
    val Pickled: Int = PythonEvalType.SQL_BATCHED_UDF
    val ArrowOptimized: Int = PythonEvalType.SQL_ARROW_BATCHED_UDF
    val MapInArrow: Int = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    val MapInPandas: Int = PythonEvalType.SQL_MAP_PANDAS_ITER_UDF

    def name(evalType: Int): String = PythonEvalType.toString(evalType)
  }

  def withoutUserDefined(dataType: DataType): DataType =
    dataType.transformRecursively { case udt: UserDefinedType[_] => udt.sqlType }

  /** Raises Spark's own exception in a task that was killed. */
  def throwIfKilled(context: TaskContext): Unit = context.killTaskIfInterrupted()

  /** Whether results of these types fit what the functions were declared to return. */
  def sameTypes(declared: Seq[DataType], actual: Seq[DataType]): Boolean =
    DataType.equalsIgnoreCompatibleCollation(declared, actual)

  def compatibleRow(actual: DataType, declared: DataType): Boolean =
    DataType.equalsIgnoreCompatibleNullability(from = actual, to = declared)

  /** The end of a task that Spark has killed. */
  def taskKilled(context: TaskContext): TaskKilledException =
    new TaskKilledException(context.getKillReason().getOrElse("unknown reason"))
}
