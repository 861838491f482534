// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression
import org.apache.spark.sql.updraft.{FunctionArtifacts, PythonCall}

import io.updraft.proto.v1.{Owner, SignedStatement, Statement}
import io.updraft.spark.artifacts.SessionArtifact
import io.updraft.spark.config.{SigningSettings, UdfSettings}
import io.updraft.spark.reasons.FallbackReason

/** Signing of a query's functions at planning time. */
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

  /** Return a signed statement without a function. From it, a pool can tell whether it knows the
    * session's key. Raise IllegalArgumentException if the key is unusable.
    */
  def ofNoFunction(signing: SigningSettings, owner: Owner): SignedStatement = {
    val now = System.currentTimeMillis()
    val statement = Statement
      .newBuilder()
      .setOwner(owner)
      .setIssuedAtMilliseconds(now)
      .setExpiresAtMilliseconds(now + signing.lifetimeMilliseconds)
      .build()
    SigningKey.read(signing.keyFile).sign(statement)
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
