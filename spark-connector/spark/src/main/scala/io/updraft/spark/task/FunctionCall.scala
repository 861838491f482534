// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import scala.jdk.CollectionConverters._

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.{CallArgument, ChainedUdf, PythonCall, TableFunction}

import io.updraft.client.Replay
import io.updraft.proto.v1.{Argument, SessionPayload, Udf, Udtf}
import io.updraft.spark.signing.FunctionEnvelope
import io.updraft.spark.task.once.CallOnce

/** Call that an operator makes on a pool, as planned by the driver. A [[TaskFunction]] is the form
  * of the call that Spark sends to the tasks.
  *
  * @param names
  *   names of the functions, for errors
  * @param maxRecordsPerBatch
  *   maximum number of rows that the function sees at once; 0 means whole batches
  * @param secondInputSchema
  *   for cogroups: the right input's Arrow schema as an IPC message
  * @param joined
  *   true if the rows of a table function are joined to their input rows
  * @param replay
  *   policy for sending batches again after the loss of a worker
  * @param once
  *   policy of functions that are called once for each value
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
    replay: Replay = Replay.NEVER,
    once: Option[CallOnce] = None
) {

  /** Return the session that collects the functions' logs; None if no session collects them. */
  def loggingSession: Option[String] = environment.get(FunctionCall.SessionVariable)

  /** Return the Spark Connect session that owns the functions; empty in a classic application. */
  def connectSession: String =
    environment.get(
      FunctionCall.ArtifactsVariable
    ).filter(_ != FunctionCall.ClassicArtifacts).getOrElse("")

  /** Return the part that the pool's front reads. */
  def envelope: FunctionEnvelope =
    FunctionEnvelope(call.pythonVersion, evalType, environment, call.artifacts)

  /** Return the part that only a worker opens. */
  def payload: SessionPayload = {
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

  /** Environment variable that names the session for which PySpark's worker collects logs. */
  val SessionVariable = "PYSPARK_SPARK_SESSION_UUID"

  /** Environment variable with the seconds between two dumps of a worker's stack. */
  val DumpVariable = "PYTHON_TRACEBACK_DUMP_INTERVAL_SECONDS"

  /** Environment variable that tells PySpark's worker which Spark Connect session's artifacts to
    * use.
    */
  private val ArtifactsVariable = "SPARK_JOB_ARTIFACT_UUID"

  /** Value of [[ArtifactsVariable]] without Spark Connect. */
  private val ClassicArtifacts = "default"

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
