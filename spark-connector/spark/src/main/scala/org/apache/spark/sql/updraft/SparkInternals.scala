// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, File, InputStream}
import java.lang.reflect.InvocationTargetException
import java.nio.channels.Channels

import scala.jdk.CollectionConverters._

import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.ipc.{ArrowStreamReader, WriteChannel}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.apache.hadoop.conf.Configuration
import org.apache.spark.api.python.{PythonBroadcast, PythonEvalType}
import org.apache.spark.internal.config.{EXECUTOR_CORES, SECRET_REDACTION_PATTERN}
import org.apache.spark.rdd.RDD
import org.apache.spark.resource.ResourceProfile
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Attribute,
  Expression,
  Literal,
  SafeProjection,
  UnsafeProjection
}
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.plans.physical.{AllTuples, ClusteredDistribution, Distribution}
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.execution.{RDDScanExec, SparkPlan}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch}
import org.apache.spark.storage.BroadcastBlockId
import org.apache.spark.util.{ShutdownHookManager, Utils}
import org.apache.spark.{JobArtifactSet, SparkContext, SparkEnv, TaskContext, TaskKilledException}

/** Access to the parts of Spark that the connector needs and that are visible only inside Spark's
  * packages. Objects of this package that differ between Spark versions are in the folders
  * `spark-before-*` and `spark-since-*`.
  */
object SparkInternals {

  /** Allocator of the connector's Arrow memory. It must be empty when no task runs. */
  val allocator: BufferAllocator =
    ArrowUtils.rootAllocator.newChildAllocator("updraft", 0, Long.MaxValue)

  /** Return the schema of one struct column that holds a row, as the map family sends it. */
  def rowSchema(row: Schema): Schema = new Schema(
    Seq(
      new Field(
        "_0",
        new FieldType(true, ArrowType.Struct.INSTANCE, null),
        row.getFields
      )
    ).asJava
  )

  /** Return a schema as an IPC message. The schema class of Arrow 12 has no method for that. */
  def message(schema: Schema): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    MessageSerializer.serialize(new WriteChannel(Channels.newChannel(bytes)), schema): Unit
    bytes.toByteArray
  }

  def sparkType(field: Field): DataType = ArrowUtils.fromArrowField(field)

  /** Return the values of an Arrow stream with one row. An empty stream has no values. */
  def literals(stream: Array[Byte], row: StructType): Seq[Literal] =
    if (stream.isEmpty) Seq.empty
    else {
      val reader = new ArrowStreamReader(new ByteArrayInputStream(stream), allocator)
      try {
        val isThere = reader.loadNextBatch()
        val columns = reader.getVectorSchemaRoot.getFieldVectors.asScala
        if (!isThere || reader.getVectorSchemaRoot.getRowCount != 1 || columns.size != row.length)
          throw new IllegalArgumentException(
            s"the pool's default values must be one row with ${row.length} columns"
          )
        val batch = new ColumnarBatch(columns.map(new ArrowColumnVector(_)).toArray, 1)
        // The copied unsafe row outlives the batch. Its values are converted to safe values,
        // because column names show them.
        val kept = UnsafeProjection.create(row).apply(batch.getRow(0)).copy()
        SafeProjection.create(row).apply(kept).toSeq(row).zip(row).map { case (value, field) =>
          Literal(value, field.dataType)
        }
      } finally reader.close()
    }

  /** Return the distribution with equal keys in one partition. Without keys, all rows are in one
    * partition.
    */
  def togetherBy(keys: Seq[Expression]): Distribution =
    if (keys.isEmpty) AllTuples
    else Defaults.call(ClusteredDistribution, "apply", Seq(keys)).asInstanceOf[Distribution]

  /** Return the key normalized so that equal values have equal bits, although floating-point
    * numbers have several NaNs and two zeros.
    */
  def normalizedKey(key: Expression): Expression = NormalizeFloatingNumbers.normalize(key)

  /** Return a plan of one row without columns. */
  def oneRow(context: SparkContext): SparkPlan = Defaults
    .call(
      RDDScanExec,
      "apply",
      Seq(Seq.empty[Attribute], context.parallelize(Seq(InternalRow.empty), 1), "OneRow")
    )
    .asInstanceOf[SparkPlan]

  /** Return whether strings in values of this type are compared by a collation. */
  def isCollated(dataType: DataType): Boolean = Collations.isCollated(dataType)

  /** Return the stock metrics of Python operators, under their stock names. */
  def pythonMetrics(context: SparkContext): Map[String, SQLMetric] =
    PythonMetrics.sizes.map { case (key, text) =>
      key -> SQLMetrics.createSizeMetric(context, text)
    } ++ PythonMetrics.timings.map { case (key, text) =>
      key -> SQLMetrics.createTimingMetric(context, text)
    } ++ PythonMetrics.counts.map { case (key, text) =>
      key -> SQLMetrics.createMetric(context, text)
    }

  /** Return the settings that PySpark's worker reads for the Arrow family, as Spark itself collects
    * them. Since Spark 4.2 they include the profiler.
    */
  def arrowRunnerConf(conf: SQLConf): Map[String, String] =
    ArrowPythonRunner.getPythonRunnerConfMap(conf) ++ pickledRunnerConf(conf)

  /** Return the settings that PySpark's worker reads for pickled UDFs. */
  def pickledRunnerConf(conf: SQLConf): Map[String, String] =
    SessionConf.profiler(conf).map(ProfilerKey -> _).toMap

  private val ProfilerKey = "spark.sql.pyspark.udf.profiler"

  def addSpilled(context: TaskContext, memoryBytes: Long, diskBytes: Long): Unit = {
    context.taskMetrics().incMemoryBytesSpilled(memoryBytes)
    context.taskMetrics().incDiskBytesSpilled(diskBytes)
  }

  /** Return how many bytes of memory a task's operators have spilled to disk. */
  def spilled(context: TaskContext): Long = context.taskMetrics().memoryBytesSpilled

  def addPeakMemory(context: TaskContext, bytes: Long): Unit =
    context.taskMetrics().incPeakExecutionMemory(bytes)

  /** Plan a logical node by the strategies of Spark and of other extensions. */
  def planByOthers(session: SparkSession, plan: LogicalPlan): Seq[SparkPlan] =
    session.sessionState.planner.strategies.iterator
      .filter(!_.getClass.getName.startsWith("io.updraft."))
      .map(_.apply(plan))
      .find(_.nonEmpty)
      .getOrElse(Nil)

  /** Return whether Spark encrypts what it writes to disk, including broadcast variables. */
  def isEncrypted: Boolean = SparkEnv.get.serializerManager.encryptionEnabled

  def decrypted(stream: InputStream): InputStream =
    SparkEnv.get.serializerManager.wrapForEncryption(stream)

  /** Return the file that holds the value of a Python broadcast variable in this process. */
  def broadcastFile(id: Long): File = {
    val block = BroadcastBlockId(id)
    val manager = SparkEnv.get.blockManager
    val found = manager.getLocalValues(block).getOrElse(
      throw new NoSuchElementException(
        s"Spark removed broadcast variable $id before its worker could read it: broadcast the value again, or " +
          "call unpersist after the job"
      )
    )
    try new File(found.data.next().asInstanceOf[PythonBroadcast].path)
    finally manager.releaseLock(block)
  }

  /** Return whether a file is in a directory that Spark has made for data of this process. */
  def isInLocalDirectories(file: File): Boolean = {
    val env = SparkEnv.get
    val path = file.getCanonicalFile.toPath
    (env.blockManager.diskBlockManager.localDirs.toSeq ++
      Utils.getOrCreateLocalRootDirs(env.conf).map(new File(_)))
      .exists(directory => path.startsWith(directory.getCanonicalFile.toPath))
  }

  /** Create a file that is deleted when this process ends. */
  def temporaryFile(prefix: String, suffix: String): File =
    File.createTempFile(prefix, suffix, temporaryDirectory)

  private lazy val temporaryDirectory =
    Utils.createTempDir(Utils.getLocalDir(SparkEnv.get.conf), "updraft")

  /** Return the local properties of a task that a function may see: properties set by the user and
    * properties that identify the job. Two kinds of properties are left out: the session's
    * settings, which Spark also keeps as local properties, and everything that Spark would redact
    * in its own UI.
    */
  def visibleProperties(context: TaskContext): Map[String, String] =
    visible(context.getLocalProperties.asScala.toMap)

  /** Return the part of a task's local properties that a function may see. */
  def visible(properties: Map[String, String]): Map[String, String] = {
    val candidates = properties.toSeq.filter { case (name, _) =>
      !name.startsWith("spark.") || JobProperties(name)
    }
    Utils
      .redact(Some(SparkEnv.get.conf.get(SECRET_REDACTION_PATTERN)), candidates)
      .filter { case (_, value) => value != Utils.REDACTION_REPLACEMENT_TEXT }
      .toMap
  }

  private val JobProperties = Set(
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    "spark.job.tags",
    "spark.scheduler.pool",
    "spark.sql.execution.id",
    "spark.sql.execution.root.id"
  )

  /** Return the memory limit of one worker: `spark.executor.pyspark.memory`, divided in the same
    * way as by the stock runner; 0 without a limit.
    */
  def workerMemoryBytes(context: TaskContext): Long = {
    val cores = Option(context.getLocalProperty(ResourceProfile.EXECUTOR_CORES_LOCAL_PROPERTY))
      .fold(SparkEnv.get.conf.get(EXECUTOR_CORES))(_.toInt)
    Option(context.getLocalProperty(ResourceProfile.PYSPARK_MEMORY_LOCAL_PROPERTY))
      .fold(0L)(_.toLong / cores << 20)
  }

  /** Run `body`, which makes nodes of a plan, with the plan's session as the active one. */
  def withSession[T](plan: SparkPlan)(body: => T): T = plan.session.withActive(body)

  /** Return the id by which PySpark knows a plan's session. */
  def sessionUuid(plan: SparkPlan): Option[String] = Option(plan.session).map(_.sessionUUID)

  def jobArtifactUuid: Option[String] = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)

  def mapPartitions[T, R: scala.reflect.ClassTag](rdd: RDD[T])(
      compute: (Int, Iterator[T]) => Iterator[R]
  ): RDD[R] =
    rdd.mapPartitionsWithIndexInternal(compute)

  /** PySpark's numbers for kinds of functions. */
  object EvalType {
    val Pickled: Int = PythonEvalType.SQL_BATCHED_UDF
    val ArrowOptimized: Int = PythonEvalType.SQL_ARROW_BATCHED_UDF
    val ScalarPandas: Int = PythonEvalType.SQL_SCALAR_PANDAS_UDF
    val PickledTable: Int = PythonEvalType.SQL_TABLE_UDF
    val ArrowOptimizedTable: Int = PythonEvalType.SQL_ARROW_TABLE_UDF

    def name(evalType: Int): String = PythonEvalType.toString(evalType)
  }

  def withoutUserDefined(dataType: DataType): DataType =
    replaced(dataType) { case udt: UserDefinedType[_] => udt.sqlType }

  /** Return the storage type of a type. User-defined and interval types are stored as other types.
    */
  def storedType(dataType: DataType): DataType = replaced(dataType) {
    case udt: UserDefinedType[_] => storedType(udt.sqlType)
    case _: YearMonthIntervalType => IntegerType
    case _: DayTimeIntervalType => LongType
    case _: StringType => StringType
  }

  /** Return the type after replacing it or the types nested in it. The types nested in a
    * replacement are not replaced.
    */
  private def replaced(dataType: DataType)(by: PartialFunction[DataType, DataType]): DataType =
    by.applyOrElse(
      dataType,
      (other: DataType) =>
        other match {
          case ArrayType(element, nulls) => ArrayType(replaced(element)(by), nulls)
          case MapType(key, value, nulls) =>
            MapType(replaced(key)(by), replaced(value)(by), nulls)
          case StructType(fields) =>
            StructType(fields.map(field => field.copy(dataType = replaced(field.dataType)(by))))
          case leaf => leaf
        }
    )

  /** Run `body` when the JVM ends, after Spark has released its resources. */
  def onExit(body: () => Unit): Unit =
    ShutdownHookManager.addShutdownHook(AfterSpark)(body): Unit

  private val AfterSpark = ShutdownHookManager.TEMP_DIR_SHUTDOWN_PRIORITY

  /** Return whether PySpark's worker converts whole batches to pandas for Arrow-optimized UDFs.
    * PySpark before 4.1 always does so; later versions do so only with a legacy setting. A null in
    * a batch then turns the batch's integers into floats, so a function's argument depends on the
    * other rows.
    */
  def convertsBatchesForArrowUdfs(conf: SQLConf): Boolean = {
    val key = "spark.sql.legacy.execution.pythonUDF.pandas.conversion.enabled"
    !conf.isModifiable(key) || conf.getConfString(key).toBoolean
  }

  /** Return the settings of the session, even in a view. While Spark analyzes the query of a view,
    * `SQLConf.get` has only the settings that Spark stores with views, and these do not include
    * `spark.updraft`.
    */
  def activeConf: SQLConf = SparkSession.getActiveSession.fold(SQLConf.get)(conf)

  def conf(session: SparkSession): SQLConf = session.sessionState.conf

  def hadoopConf(session: SparkSession, options: Map[String, String]): Configuration =
    session.sessionState.newHadoopConfWithOptions(options)

  /** Raise Spark's own exception in a killed task. */
  def throwIfKilled(context: TaskContext): Unit = context.killTaskIfInterrupted()

  /** Return whether results of these types fit the functions' declarations. */
  def sameTypes(declared: Seq[DataType], actual: Seq[DataType]): Boolean =
    Collations.sameTypes(declared, actual)

  def compatibleRow(actual: DataType, declared: DataType): Boolean =
    DataType.equalsIgnoreCompatibleNullability(from = actual, to = declared)

  /** Return Spark's exception for a killed task. */
  def taskKilled(context: TaskContext): TaskKilledException =
    new TaskKilledException(context.getKillReason().getOrElse("unknown reason"))
}

/** Calls of Spark methods to which newer versions add parameters with defaults. Methods are looked
  * up by name, so that one jar runs on several versions.
  */
private[updraft] object Defaults {

  /** Call the only method of an object that has this name and at least this many parameters. */
  def call(target: AnyRef, name: String, arguments: Seq[AnyRef]): AnyRef = {
    val method = target.getClass.getMethods
      .find(method => method.getName == name && method.getParameterCount >= arguments.length)
      .getOrElse(throw new NoSuchMethodError(s"${target.getClass.getName}.$name"))
    val more = (arguments.length until method.getParameterCount).map { index =>
      target.getClass.getMethod(s"$name$$default$$${index + 1}").invoke(target)
    }
    try method.invoke(target, arguments ++ more: _*)
    catch { case e: InvocationTargetException => throw e.getCause }
  }
}
