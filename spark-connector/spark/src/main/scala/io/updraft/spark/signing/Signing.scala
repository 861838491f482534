// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import java.security.MessageDigest

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.google.protobuf.ByteString
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression
import org.apache.spark.sql.updraft.{FunctionArtifacts, PythonCall}

import io.updraft.proto.v1.{Owner, SessionFunction, SignedStatement, Statement}
import io.updraft.spark.artifacts.SessionArtifact
import io.updraft.spark.config.{SigningSettings, UdfSettings}
import io.updraft.spark.reasons.FallbackReason

/** Signatures that the driver makes: for a query's functions at planning time, and for its Python
  * workers.
  */
object Signing {

  /** Return why the functions cannot be signed; None if they can be signed, or if the session does
    * not sign.
    */
  def problem(
      settings: UdfSettings,
      functions: Seq[PythonFuncExpression]
  ): Option[FallbackReason] = settings.signing.filter(_ => functions.nonEmpty).flatMap { _ =>
    unreadable(PythonCall.artifactsOf(functions)).map(FallbackReason.UnsignedArtifact.about)
  }

  /** Return a signed statement without a function. The pool uses this statement to check whether
    * the pool knows the session's key. Raise IllegalArgumentException if the key is unusable.
    */
  def ofNoFunction(signing: SigningSettings, owner: Owner): SignedStatement =
    signed(signing, owner, Statement.newBuilder())

  /** Return a signed statement about a function. Raise IllegalArgumentException if the key is
    * unusable.
    *
    * @param payloadSha256
    *   digest of the payload that each exchange sends
    * @param schemaSha256
    *   digest of the header of the arguments' schema
    * @param commandsSha256
    *   digest of each pickled function
    */
  def ofFunction(
      signing: SigningSettings,
      owner: Owner,
      function: SessionFunction,
      payloadSha256: ByteString,
      schemaSha256: ByteString,
      commandsSha256: Iterable[ByteString]
  ): SignedStatement = signed(
    signing,
    owner,
    Statement
      .newBuilder()
      .setFunction(function)
      .setPayloadSha256(payloadSha256)
      .setSchemaSha256(schemaSha256)
      .addAllCommandSha256(commandsSha256.asJava)
  )

  def sha256(bytes: Array[Byte]): ByteString =
    ByteString.copyFrom(MessageDigest.getInstance("SHA-256").digest(bytes))

  private def signed(signing: SigningSettings, owner: Owner, statement: Statement.Builder) = {
    val now = System.currentTimeMillis()
    statement
      .setOwner(owner)
      .setIssuedAtMilliseconds(now)
      .setExpiresAtMilliseconds(now + signing.lifetimeMilliseconds)
    SigningKey.read(signing.keyFile).sign(statement.build())
  }

  /** Return the first artifact that the driver cannot read, and the reason. */
  private def unreadable(artifacts: FunctionArtifacts): Option[String] =
    artifacts.roles.iterator.flatMap { role =>
      try {
        SessionArtifact.of(artifacts.file(role))
        None
      } catch {
        case NonFatal(e) => Some(s"$role: $e")
      }
    }.find(_ => true)
}
