// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, PythonFuncExpression}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.{ColumnarRule, RowToColumnarExec, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{PythonCall, PythonConf, SessionConf, SparkInternals}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.client.Replay
import io.updraft.spark.columns.{BatchLimits, ResultColumns}
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.input.RequestSpec
import io.updraft.spark.task.{ExchangeMetrics, FunctionCall, TaskPipeline, TaskRunner}
import io.updraft.spark.trace.QuerySpans

/** Shared part of the operators that run Python on a pool. Most of them read rows or batches,
  * whichever their children produce, and return batches. [[FlightFoldExec]] reads and returns rows.
  */
trait FlightPythonExec extends SparkPlan {

  /** Return the functions that run on the pool. */
  def udfs: Seq[PythonFuncExpression]

  /** Return the functions among [[udfs]] that the session ships. */
  protected def shipped: Seq[PythonFuncExpression] = udfs

  /** Return the connector's settings at planning time. The session's settings may have changed
    * since.
    */
  def settings: UdfSettings

  /** Return the eval type, a value of Spark's PythonEvalType. The eval type determines how the
    * functions exchange data with PySpark's worker.
    */
  def evalType: Int = udfs.head.evalType

  protected lazy val exchangeMetrics: ExchangeMetrics = ExchangeMetrics.create(sparkContext)

  override lazy val metrics: Map[String, SQLMetric] = exchangeMetrics.all

  override def supportsColumnar: Boolean = true

  override def vectorTypes: Option[Seq[String]] =
    Some(output.map(column => ResultColumns.className(column.dataType)))

  override protected def doExecute(): RDD[InternalRow] =
    throw new UnsupportedOperationException(s"$nodeName returns batches, not rows")

  /** Return the work of one task. Spark sends the work to the tasks. */
  protected[plan] def taskRunner: TaskPipeline

  /** Check the pool and start the query's span. Runs on the driver before tasks are created. */
  protected def beforeTasks(): Unit = {
    PoolProbe.require(settings, shipped)
    QuerySpans.begin(settings.connection, sparkContext)
  }

  /** Return the fallback for tasks of a barrier stage. Registered functions need no fallback,
    * because they have no task context.
    */
  protected def barrierTasks: Option[BarrierTasks] =
    if (shipped.isEmpty) None
    else BarrierTasks.of(this, settings, requestSpec(output, output.indices, Seq.empty, Seq.empty))

  /** Return the replay policy for functions whose results do not match their input rows one to one.
    * Such functions run again only from the first batch, and only if the session declares them
    * deterministic.
    */
  protected def replay: Replay =
    if (settings.deterministic && udfs.forall(_.deterministic)) Replay.FROM_THE_START
    else Replay.NEVER

  protected def functionNames: String = udfs.map(udf => s"${udf.name}()").mkString(", ")

  protected def limits: BatchLimits = BatchLimits(
    sliceRows = sliceRows,
    sliceBytes = SessionConf.arrowBytesPerBatch(conf),
    requestBytes = math.min(settings.batchBytes, SessionConf.arrowBytesPerBatch(conf)),
    heldBytes = settings.batchBytes * FlightPythonExec.HeldPerRequest,
    ceilingBytes = math.max(FlightPythonExec.CeilingBytes, settings.batchBytes)
  )

  /** Return the specification of requests that are built from rows with these columns. */
  protected def requestSpec(
      child: Seq[Attribute],
      copied: Seq[Int],
      passed: Seq[Int],
      inputs: Seq[Expression]
  ): RequestSpec = RequestSpec(
    child,
    copied,
    passed,
    inputs,
    limits,
    conf.sessionLocalTimeZone,
    conf.arrowUseLargeVarTypes
  )

  /** Return the call for functions over Arrow data. */
  protected def arrowCall(
      call: PythonCall,
      kindConf: Map[String, String] = Map.empty,
      evalConf: Map[String, String] = Map.empty
  ): FunctionCall = FunctionCall(
    call,
    functionNames,
    evalType,
    SparkInternals.arrowRunnerConf(conf) ++ kindConf,
    evalConf,
    environment(FlightPythonExec.DefaultPickledRows),
    if (sliceRows == Int.MaxValue) 0 else sliceRows,
    replay = replay
  )

  /** Return the call for functions over pickled rows. */
  protected def pickledCall(call: PythonCall, pickledRows: Int): FunctionCall = FunctionCall(
    call,
    functionNames,
    evalType,
    SparkInternals.pickledRunnerConf(conf),
    Map.empty,
    environment(pickledRows),
    maxRecordsPerBatch = 0,
    replay = replay
  )

  /** Return the maximum number of rows that the function may see at once. */
  protected def sliceRows: Int =
    if (conf.arrowMaxRecordsPerBatch > 0) conf.arrowMaxRecordsPerBatch else Int.MaxValue

  /** Return the environment variables for PySpark's worker, with the values that the stock runners
    * set. `pickledRows` is the number of rows in a pickled list.
    */
  protected def environment(pickledRows: Int): Map[String, String] = {
    val dumpSeconds = PythonConf.tracebackDumpSeconds(conf)
    val session =
      if (PythonConf.collectsWorkerLogs(conf)) SparkInternals.sessionUuid(this) else None
    val flags = Map(
      "SPARK_HIDE_TRACEBACK" -> SessionConf.hidesTraceback(conf),
      "SPARK_SIMPLIFIED_TRACEBACK" -> conf.pysparkSimplifiedTraceback,
      "SPARK_TRACEBACK_WITH_LOCALS" -> showsLocals
    )
    Map(
      "SPARK_JOB_ARTIFACT_UUID" -> SparkInternals.jobArtifactUuid.getOrElse("default"),
      "PYTHON_UDF_BATCH_SIZE" -> pickledRows.toString
    ) ++
      flags.collect { case (name, true) => name -> "1" } ++
      Some(dumpSeconds).filter(_ > 0).map(FunctionCall.DumpVariable -> _.toString) ++
      session.map(FunctionCall.SessionVariable -> _)
  }

  // The setting is read by name because it first appears in Spark 4.3.
  private def showsLocals: Boolean =
    conf
      .getConfString("spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled", "false")
      .toBoolean

  override def simpleString(maxFields: Int): String =
    s"$nodeName [$functionNames], endpoint=${settings.endpoint}, kind=${EvalType.name(evalType)}"
}

/** Operator with one child; [[TaskRunner]] does the work of a task. */
trait FlightUnaryExec extends FlightPythonExec with UnaryExecNode {

  override protected[plan] def taskRunner: TaskRunner

  /** Return whether generated code may write the requests. One request may then hold rows of
    * several files, so a subclass that allows this must track the file of each row.
    */
  protected def mayFuse: Boolean = false

  override protected def doExecuteColumnar(): RDD[ColumnarBatch] = {
    beforeTasks()
    val runner = taskRunner
    val barrier = barrierTasks
    val fused =
      if (mayFuse) SparkInternals.withSession(this) {
        runner.fused.flatMap(input => FusedStage.of(child, input.spec).map(input -> _))
      }
      else None
    if (fused.isDefined) {
      val (input, stage) = fused.get
      SparkInternals.mapPartitions(stage.input) { (partition, rows) =>
        val context = TaskContext.get()
        barrier.filter(_.include(context)) match {
          case Some(stock) =>
            stock.batches(partition, Seq(stage.plain.rows(partition, rows)), context)
          case None => runner.runFused(input, stage.fused, partition, rows, context)
        }
      }
    } else if (child.supportsColumnar) {
      SparkInternals.mapPartitions(child.executeColumnar()) { (partition, batches) =>
        val context = TaskContext.get()
        barrier.filter(_.include(context)) match {
          case Some(stock) =>
            stock.batches(partition, Seq(batches.flatMap(_.rowIterator().asScala)), context)
          case None => runner.runBatches(partition, batches, context)
        }
      }
    } else {
      SparkInternals.mapPartitions(child.execute()) { (partition, rows) =>
        val context = TaskContext.get()
        barrier.filter(_.include(context)) match {
          case Some(stock) => stock.batches(partition, Seq(rows), context)
          case None => runner.runRows(partition, rows, context)
        }
      }
    }
  }
}

object FlightPythonExec {

  /** Size of pickled lists that the stock runners report to PySpark's worker for functions whose
    * rows are not pickled.
    */
  val DefaultPickledRows = 100

  /** Maximum size of all columns of a batch, as a multiple of the target size of its arguments. */
  val HeldPerRequest = 4L

  /** Bytes of all columns at which a batch ends even inside a slice, although the function then
    * sees fewer rows at once.
    */
  val CeilingBytes: Long = 16L << 20
}

/** Rule that removes the conversion to columns that Spark inserts between a columnar operator and a
  * child that returns rows. Our operators read rows themselves.
  */
object ReadRowsDirectly extends ColumnarRule {

  override def postColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override val ruleName: String = "ReadRowsDirectly"

    override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
      case flight: FlightPythonExec =>
        flight.withNewChildren(flight.children.map {
          case RowToColumnarExec(rows) => rows
          case other => other
        })
    }
  }
}
