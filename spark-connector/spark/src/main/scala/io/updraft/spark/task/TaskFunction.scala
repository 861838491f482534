// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import java.security.MessageDigest

import scala.jdk.CollectionConverters._

import com.google.protobuf.{ByteString, UnsafeByteOperations}
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.TaskContext
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.updraft.{PythonConf, SparkInternals}
import org.apache.spark.util.CollectionAccumulator

import io.updraft.client.{Artifact, Exchange, Replay}
import io.updraft.proto.v1.{ExchangeCommand, Limits, SessionPayload}
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.signing.{AnnouncedFunction, FunctionToSign, UnsignedFunction}

/** What the tasks of an operator ask of a pool: made on the driver, serialized to the tasks, which
  * add only what is theirs.
  */
trait TaskFunction extends Serializable {

  /** The functions' names, for errors. */
  def names: String

  /** What another worker may be sent when one is lost. */
  def replay: Replay

  /** Where the functions' accumulator updates go. */
  def accumulator: Option[CollectionAccumulator[Array[Byte]]] = None

  /** The session whose logs the functions write, if it collects them. */
  def loggingSession: Option[String] = None

  /** How the exchange of one task begins. */
  def opening(context: TaskContext): Opening
}

/** The first message of an exchange, and what the pool may ask for. */
final case class Opening(command: ExchangeCommand, artifacts: Seq[Artifact])

/** A function that the session ships.
  *
  * @param payload
  *   a serialized SessionPayload
  */
final class SessionTaskFunction private[task] (
    override val names: String,
    override val replay: Replay,
    override val accumulator: Option[CollectionAccumulator[Array[Byte]]],
    override val loggingSession: Option[String],
    connectSession: String,
    maxRecordsPerBatch: Int,
    announced: AnnouncedFunction,
    payload: Array[Byte]
) extends TaskFunction {

  override def opening(context: TaskContext): Opening = {
    val announcement = announced.announcement
    val command = TaskFunction
      .command(context, connectSession, maxRecordsPerBatch)
      .setSession(announcement.function)
      .setPayload(UnsafeByteOperations.unsafeWrap(payload))
    announcement.statement.foreach(command.setSignedStatement(_))
    Opening(command.build(), announcement.artifacts)
  }
}

object TaskFunction {

  /** What every exchange of a task says. */
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

  /** Takes a call to the tasks, signed if the session signs; raises an error if it cannot be.
    *
    * @param schema
    *   of the arguments
    */
  def of(call: FunctionCall, schema: => Schema, settings: UdfSettings): TaskFunction = {
    val payload = call.payload.toByteArray
    new SessionTaskFunction(
      call.names,
      call.replay,
      Option(call.call.accumulator),
      call.loggingSession,
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
      commands(call.payload).map(command => sha256(command.toByteArray)),
      sha256(payload),
      sha256(Exchange.schemaHeader(schema))
    )
    // Now, where the query fails with the reason: when Spark serializes it, a job does.
    function.signed
    function
  }

  /** Each pickled function once, however often the query uses it. */
  private def commands(payload: SessionPayload): Seq[ByteString] = {
    val udfs = payload.getUdfsList.asScala.toSeq.flatMap(_.getCommandsList.asScala)
    (if (payload.hasUdtf) udfs :+ payload.getUdtf.getCommand else udfs).distinct
  }

  private def sha256(bytes: Array[Byte]): ByteString =
    ByteString.copyFrom(MessageDigest.getInstance("SHA-256").digest(bytes))
}
