// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import java.util.TimeZone

import scala.jdk.CollectionConverters._

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.FunctionArtifacts
import org.apache.spark.{SPARK_VERSION, SparkEnv}

import io.updraft.client.Artifact
import io.updraft.proto.v1
import io.updraft.proto.v1.{Owner, SessionFunction, SignedStatement, Statement}
import io.updraft.spark.artifacts.{SessionArtifact, SignedArtifact}
import io.updraft.spark.config.SigningSettings

/** Description of a task's function for the pool.
  *
  * @param statement
  *   the driver's signed statement; None without signing
  */
final case class Announcement(
    function: SessionFunction,
    artifacts: Seq[Artifact],
    statement: Option[SignedStatement]
)

/** Source of each task's announcement. Made on the driver, serialized to the tasks. */
trait AnnouncedFunction extends Serializable {
  def announcement: Announcement
}

/** Unsigned function, which each executor describes from its own artifacts. */
final class UnsignedFunction(envelope: FunctionEnvelope) extends AnnouncedFunction {

  override def announcement: Announcement = {
    val artifacts = SessionArtifact.of(envelope.artifacts)
    Announcement(envelope.function(artifacts.map(_.listed)), artifacts, None)
  }
}

/** Function signed by the driver. Tasks send the driver's statement unchanged.
  *
  * @param signedStatement
  *   serialized SignedStatement
  * @param artifacts
  *   source of the artifacts that the statement lists
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

/** Function that the driver signs when Spark serializes it. Spark keeps a query's RDDs and may run
  * them again days later, but Spark serializes the RDDs for every stage that it submits. So the
  * driver signs the function anew for each stage, with the artifacts that exist at that time.
  *
  * @param commandsSha256
  *   digest of each pickled function
  * @param payloadSha256
  *   digest of the payload that each task sends
  * @param schemaSha256
  *   digest of the header of the arguments' schema
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
    val signedStatement = Signing.ofFunction(
      settings,
      owner,
      envelope.function(artifacts.map(_.listed)),
      payloadSha256,
      schemaSha256,
      commandsSha256
    )
    new SignedFunction(signedStatement.toByteArray, envelope.artifacts)
  }

  /** Return the object that Java serializes in place of this one. */
  private def writeReplace(): AnyRef = signed
}

/** Part of a session function that a pool's front reads, except the digests of artifacts.
  *
  * @param environment
  *   environment variables that the session sets for PySpark's worker
  */
final case class FunctionEnvelope(
    pythonVersion: String,
    evalType: Int,
    environment: Map[String, String],
    artifacts: FunctionArtifacts
) {

  /** Return the function's entry in the command, with the time zone of this process. */
  def function(listed: Seq[v1.Artifact]): SessionFunction =
    SessionFunction
      .newBuilder()
      .setPythonVersion(pythonVersion)
      .setSparkVersion(SPARK_VERSION)
      .setEvalType(evalType)
      .putAllEnvironment((FunctionEnvelope.hostEnvironment ++ environment).asJava)
      .addAllArtifacts(listed.asJava)
      .addAllPythonIncludes(artifacts.includes.asJava)
      .putAllUserEnvironment(artifacts.variables.asJava)
      .build()
}

object FunctionEnvelope {

  /** Return the environment variables that Spark's own Python workers inherit from the process that
    * starts these workers.
    */
  private def hostEnvironment: Map[String, String] = Map(
    "TZ" -> TimeZone.getDefault.getID,
    "OMP_NUM_THREADS" -> SparkEnv.get.conf.get("spark.task.cpus", "1")
  )
}
