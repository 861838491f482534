// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import scala.jdk.CollectionConverters._

import com.google.protobuf.{ByteString, UnsafeByteOperations}
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.TaskContext
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.updraft.{CalledFunction, PythonConf, SparkInternals}
import org.apache.spark.util.CollectionAccumulator

import io.updraft.client.{Artifact, Exchange, Replay}
import io.updraft.proto.v1.{
  AggregateStage,
  ExchangeCommand,
  Limits,
  RegisteredFunction,
  SessionPayload
}
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.signing.{AnnouncedFunction, FunctionToSign, Signing, UnsignedFunction}
import io.updraft.spark.task.once.CallOnce

/** Function that the tasks of an operator call on a pool. The driver creates the function, and
  * Spark sends it to the tasks. Each task adds only its own data.
  */
trait TaskFunction extends Serializable {

  /** Return the names of the functions, for errors. */
  def names: String

  /** Return the policy for sending batches again after the loss of a worker. */
  def replay: Replay

  /** Return the destination of the functions' accumulator updates. */
  def accumulator: Option[CollectionAccumulator[Array[Byte]]] = None

  /** Return the session that collects the functions' logs; None if no session collects them. */
  def loggingSession: Option[String] = None

  /** Return the policy of functions that are called once for each value. */
  def once: Option[CallOnce] = None

  /** Return the request that opens one task's exchange. */
  def opening(context: TaskContext): TaskRequest
}

/** First message of an exchange, and the artifacts that the pool may ask for. */
final case class TaskRequest(command: ExchangeCommand, artifacts: Seq[Artifact])

/** Function shipped by the session.
  *
  * @param payload
  *   serialized SessionPayload
  */
final class SessionTaskFunction private[task] (
    override val names: String,
    override val replay: Replay,
    override val accumulator: Option[CollectionAccumulator[Array[Byte]]],
    override val loggingSession: Option[String],
    override val once: Option[CallOnce],
    connectSession: String,
    maxRecordsPerBatch: Int,
    announced: AnnouncedFunction,
    payload: Array[Byte]
) extends TaskFunction {

  override def opening(context: TaskContext): TaskRequest = {
    val announcement = announced.announcement
    val command = TaskFunction
      .command(context, connectSession, maxRecordsPerBatch)
      .setSession(announcement.function)
      .setPayload(UnsafeByteOperations.unsafeWrap(payload))
    announcement.statement.foreach(command.setSignedStatement(_))
    TaskRequest(command.build(), announcement.artifacts)
  }
}

object TaskFunction {

  /** Return the common part of the commands of a task. */
  def command(
      context: TaskContext,
      connectSession: String,
      maxRecordsPerBatch: Int
  ): ExchangeCommand.Builder = ExchangeCommand
    .newBuilder()
    .setProtocolVersion(Exchange.PROTOCOL_VERSION)
    .setTask(TaskIdentities.of(context, connectSession))
    .setLimits(limits(context, maxRecordsPerBatch))

  private def limits(context: TaskContext, maxRecordsPerBatch: Int): Limits = {
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

  /** Return a function for the tasks. If the session signs, sign the function, or raise an error if
    * that is not possible.
    *
    * @param schema
    *   schema of the arguments
    */
  def of(call: FunctionCall, schema: => Schema, settings: UdfSettings): TaskFunction = {
    val payload = call.payload.toByteArray
    new SessionTaskFunction(
      call.names,
      call.replay,
      Option(call.call.accumulator),
      call.loggingSession,
      call.once,
      call.connectSession,
      call.maxRecordsPerBatch,
      announced(call, payload, schema, settings),
      payload
    )
  }

  private def announced(
      call: FunctionCall,
      payload: Array[Byte],
      schema: => Schema,
      settings: UdfSettings
  ): AnnouncedFunction = settings.signing.fold[AnnouncedFunction](
    new UnsignedFunction(call.envelope)
  ) { signing =>
    val owner = TaskIdentities.owner(call.connectSession)
    settings.connection.tenant.foreach(owner.setTenant)
    val function = new FunctionToSign(
      signing,
      owner.build(),
      call.envelope,
      commands(call.payload).map(command => Signing.sha256(command.toByteArray)),
      Signing.sha256(payload),
      Signing.sha256(Exchange.schemaHeader(schema))
    )
    // Sign once now, so that a failure to sign fails the query with a clear reason. If signing
    // failed first when Spark serializes the function, only a job would fail.
    function.signed
    function
  }

  /** Return each pickled function once, even if the query uses it several times. */
  private def commands(payload: SessionPayload): Seq[ByteString] = {
    val udfs = payload.getUdfsList.asScala.toSeq.flatMap(_.getCommandsList.asScala)
    (if (payload.hasUdtf) udfs :+ payload.getUdtf.getCommand else udfs).distinct
  }
}

/** Function deployed with the pool.
  *
  * @param keyColumns
  *   for aggregates: number of leading columns that form the group key
  * @param filtered
  *   for aggregates: true if the column after the keys selects the rows to accumulate
  * @param joined
  *   true if the rows of a table function are joined to their input rows
  */
final class RegisteredTaskFunction(
    called: CalledFunction,
    override val replay: Replay,
    stage: AggregateStage = AggregateStage.AGGREGATE_STAGE_UNSPECIFIED,
    keyColumns: Int = 0,
    filtered: Boolean = false,
    joined: Boolean = false
) extends TaskFunction {

  override def names: String = s"${called.fullName}()"

  override def opening(context: TaskContext): TaskRequest = {
    val function = RegisteredFunction
      .newBuilder()
      .setName(called.name)
      .setVersion(called.version)
      .setStage(stage)
      .setKeyColumns(keyColumns)
      .setFiltered(filtered)
      .setJoined(joined)
    val command = TaskFunction
      .command(context, connectSession = "", maxRecordsPerBatch = 0)
      .setRegistered(function)
    TaskRequest(command.build(), Seq.empty)
  }
}
