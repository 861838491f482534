// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import java.util.TimeZone

import scala.jdk.CollectionConverters._

import com.google.protobuf.ByteString
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.updraft.{
  CallArgument,
  ChainedUdf,
  PythonCall,
  PythonConf,
  SparkInternals,
  TableFunction
}
import org.apache.spark.{SPARK_VERSION, SparkEnv, TaskContext}

import io.updraft.client.{Exchange, Replay}
import io.updraft.proto.v1.{
  Argument,
  ExchangeCommand,
  Limits,
  SessionFunction,
  SessionPayload,
  Udf,
  Udtf
}
import io.updraft.spark.artifacts.SessionArtifact

/** What an operator asks of a pool, without the task: made on the driver, serialized to the tasks.
  *
  * @param names
  *   the functions' names, for errors
  * @param maxRecordsPerBatch
  *   rows that the function may see at once; 0: all of a batch
  * @param secondInputSchema
  *   of cogroups: the right input's Arrow schema as an IPC message
  * @param joined
  *   whether the rows of a table function are joined to those that they came from
  * @param replay
  *   what another worker may be sent when one is lost
  */
final case class FunctionCall(
    call: PythonCall,
    names: String,
    evalType: Int,
    runnerConf: Map[String, String],
    evalConf: Map[String, String],
    environment: Map[String, String],
    maxRecordsPerBatch: Int,
    secondInputSchema: Array[Byte] = Array.empty,
    joined: Boolean = false,
    replay: Replay = Replay.NEVER
) {

  /** What the functions need beside their pickles, as this executor has it. */
  def artifacts: Seq[SessionArtifact] = SessionArtifact.of(call.artifacts)

  /** The command of the exchange of one task. */
  def command(artifacts: Seq[SessionArtifact], context: TaskContext): ExchangeCommand =
    ExchangeCommand
      .newBuilder()
      .setProtocolVersion(Exchange.PROTOCOL_VERSION)
      .setSession(sessionFunction(artifacts))
      .setPayload(payload.toByteString)
      .setTask(TaskIdentities.of(context, connectSession))
      .setLimits(limits(context))
      .build()

  /** The session whose logs the functions write, if it collects them. */
  def loggingSession: Option[String] = environment.get(FunctionCall.SessionVariable)

  private def connectSession: String =
    environment.get(
      FunctionCall.ArtifactsVariable
    ).filter(_ != FunctionCall.ClassicArtifacts).getOrElse("")

  private def limits(context: TaskContext): Limits = {
    val conf = SQLConf.get
    Limits
      .newBuilder()
      .setMaxRecordsPerBatch(maxRecordsPerBatch)
      .setWorkerMemoryBytes(SparkInternals.workerMemoryBytes(context))
      .setIdleTimeoutMilliseconds(PythonConf.idleTimeoutSeconds(conf) * 1000)
      .setMaxRecordsPerReply(PythonConf.outputBatchRows(conf))
      .setMaxBytesPerReply(PythonConf.outputBatchBytes(conf))
      .build()
  }

  private def sessionFunction(artifacts: Seq[SessionArtifact]): SessionFunction =
    SessionFunction
      .newBuilder()
      .setPythonVersion(call.pythonVersion)
      .setSparkVersion(SPARK_VERSION)
      .setEvalType(evalType)
      .putAllEnvironment((FunctionCall.hostEnvironment ++ environment).asJava)
      .addAllArtifacts(artifacts.map(_.listed).asJava)
      .addAllPythonIncludes(call.artifacts.includes.asJava)
      .putAllUserEnvironment(call.artifacts.variables.asJava)
      .build()

  /** What only a worker opens: all of it is known on the driver. */
  private def payload: SessionPayload = {
    val builder = SessionPayload
      .newBuilder()
      .addAllUdfs(call.udfs.map(FunctionCall.udf).asJava)
      .putAllRunnerConf(runnerConf.asJava)
      .putAllEvalConf(evalConf.asJava)
      .setSecondInputSchema(ByteString.copyFrom(secondInputSchema))
    call.table.foreach(table => builder.setUdtf(FunctionCall.udtf(table, joined)))
    builder.build()
  }
}

object FunctionCall {

  /** With it PySpark's worker logs for a session of this name. */
  val SessionVariable = "PYSPARK_SPARK_SESSION_UUID"

  /** With it PySpark's worker knows the artifacts of a Spark Connect session. */
  private val ArtifactsVariable = "SPARK_JOB_ARTIFACT_UUID"

  /** Its value without Spark Connect. */
  private val ClassicArtifacts = "default"

  /** What Spark's own workers find of the executor that starts them. */
  private def hostEnvironment: Map[String, String] = Map(
    "TZ" -> TimeZone.getDefault.getID,
    "OMP_NUM_THREADS" -> SparkEnv.get.conf.get("spark.task.cpus", "1")
  )

  private def udf(chained: ChainedUdf): Udf =
    Udf
      .newBuilder()
      .addAllArguments(chained.arguments.map(argument).asJava)
      .addAllCommands(chained.commands.map(ByteString.copyFrom).asJava)
      .setResultId(chained.resultId)
      .build()

  private def udtf(table: TableFunction, joined: Boolean): Udtf = {
    val builder = Udtf
      .newBuilder()
      .addAllArguments(table.arguments.map(argument).asJava)
      .addAllPartitionChildIndexes(table.partitionIndexes.map(Int.box).asJava)
      .setCommand(ByteString.copyFrom(table.command))
      .setReturnType(table.returnType.json)
      .setName(table.name)
      .setJoined(joined)
    table.analyzeResult.foreach(result => builder.setAnalyzeResult(ByteString.copyFrom(result)))
    builder.build()
  }

  private def argument(call: CallArgument): Argument = {
    val builder = Argument.newBuilder().setOffset(call.offset)
    call.name.foreach(builder.setName)
    builder.build()
  }
}
