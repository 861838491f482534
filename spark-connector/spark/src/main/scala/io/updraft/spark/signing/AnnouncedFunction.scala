// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import scala.jdk.CollectionConverters._

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.FunctionArtifacts

import io.updraft.client.Artifact
import io.updraft.proto.v1.{Owner, SessionFunction, SignedStatement, Statement}
import io.updraft.spark.artifacts.{SessionArtifact, SignedArtifact}
import io.updraft.spark.config.SigningSettings

/** How a task announces its function to a pool.
  *
  * @param statement
  *   by which the driver vouches for it
  */
final case class Announcement(
    function: SessionFunction,
    artifacts: Seq[Artifact],
    statement: Option[SignedStatement]
)

/** Gives each task what it announces; made on the driver, serialized to the tasks. */
trait AnnouncedFunction extends Serializable {
  def announcement: Announcement
}

/** A function that each executor describes by what it has itself. */
final class UnsignedFunction(envelope: FunctionEnvelope) extends AnnouncedFunction {

  override def announcement: Announcement = {
    val artifacts = SessionArtifact.of(envelope.artifacts)
    Announcement(envelope.function(artifacts.map(_.listed)), artifacts, None)
  }
}

/** A function as the driver has signed it: every byte that is signed is the driver's.
  *
  * @param signedStatement
  *   a serialized SignedStatement
  * @param artifacts
  *   where the task finds those that the statement lists
  */
final class SignedFunction(signedStatement: Array[Byte], artifacts: FunctionArtifacts)
    extends AnnouncedFunction {

  override def announcement: Announcement = {
    val signed = SignedStatement.parseFrom(signedStatement)
    val function = Statement.parseFrom(signed.getStatement).getFunction
    Announcement(
      function,
      function.getArtifactsList.asScala.toSeq.map(new SignedArtifact(_, artifacts)),
      Some(signed)
    )
  }
}

/** A function that the driver signs. Spark keeps a query's RDDs and runs them again whenever it
  * likes, days later too, but it serializes them for every stage that it submits: so each gets a
  * signature of its own, of the artifacts as they are then.
  *
  * @param commandsSha256
  *   of each pickled function
  * @param payloadSha256
  *   of the payload that each task sends
  * @param schemaSha256
  *   of the header of the arguments' schema
  */
final class FunctionToSign(
    settings: SigningSettings,
    owner: Owner,
    envelope: FunctionEnvelope,
    commandsSha256: Seq[ByteString],
    payloadSha256: ByteString,
    schemaSha256: ByteString
) extends AnnouncedFunction {

  override def announcement: Announcement = signed.announcement

  def signed: SignedFunction = {
    val artifacts = SessionArtifact.ofAll(envelope.artifacts)
    val now = System.currentTimeMillis()
    val statement = Statement
      .newBuilder()
      .setOwner(owner)
      .setIssuedAtMilliseconds(now)
      .setExpiresAtMilliseconds(now + settings.lifetimeMilliseconds)
      .setFunction(envelope.function(artifacts.map(_.listed)))
      .setPayloadSha256(payloadSha256)
      .setSchemaSha256(schemaSha256)
      .addAllCommandSha256(commandsSha256.asJava)
      .build()
    val signedStatement = SigningKey.read(settings.keyFile).sign(statement)
    new SignedFunction(signedStatement.toByteArray, envelope.artifacts)
  }

  /** Java serializes this in its place. */
  private def writeReplace(): AnyRef = signed
}
