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

import io.updraft.client.{Exchange, Replay}
import io.updraft.proto.v1.{ExchangeCommand, Limits, SessionPayload}
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.signing.{AnnouncedFunction, Announcement, FunctionToSign, UnsignedFunction}

/** What the tasks of an operator ask of a pool: made on the driver, serialized to the tasks, which
  * add only what is theirs.
  *
  * @param payload
  *   a serialized SessionPayload
  */
final class TaskFunction private (
    val names: String,
    val replay: Replay,
    val accumulator: Option[CollectionAccumulator[Array[Byte]]],
    val loggingSession: Option[String],
    connectSession: String,
    maxRecordsPerBatch: Int,
    announced: AnnouncedFunction,
    payload: Array[Byte]
) extends Serializable {

  def announcement: Announcement = announced.announcement

  /** The command of the exchange of one task. */
  def command(announcement: Announcement, context: TaskContext): ExchangeCommand = {
    val command = ExchangeCommand
      .newBuilder()
      .setProtocolVersion(Exchange.PROTOCOL_VERSION)
      .setSession(announcement.function)
      .setPayload(UnsafeByteOperations.unsafeWrap(payload))
      .setTask(TaskIdentities.of(context, connectSession))
      .setLimits(limits(context))
    announcement.statement.foreach(command.setSignedStatement(_))
    command.build()
  }

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
}

object TaskFunction {

  /** Takes a call to the tasks, signed if the session signs; raises an error if it cannot be.
    *
    * @param schema
    *   of the arguments
    */
  def of(call: FunctionCall, schema: => Schema, settings: UdfSettings): TaskFunction = {
    val payload = call.payload.toByteArray
    new TaskFunction(
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
