// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression
import org.apache.spark.sql.updraft.{FunctionArtifacts, PythonCall}

import io.updraft.proto.v1.{Owner, SignedStatement, Statement}
import io.updraft.spark.artifacts.SessionArtifact
import io.updraft.spark.config.{SigningSettings, UdfSettings}
import io.updraft.spark.reasons.FallbackReason

/** Whether a driver can sign the functions of a query, asked while it plans. */
object Signing {

  /** Why the functions cannot be signed, where the session signs. */
  def problem(
      settings: UdfSettings,
      functions: Seq[PythonFuncExpression]
  ): Option[FallbackReason] = settings.signing.filter(_ => functions.nonEmpty).flatMap { _ =>
    unreadable(PythonCall.artifactsOf(functions)).map(FallbackReason.UnsignedArtifact.about)
  }

  /** A statement about no function, by which a pool says whether it knows the session's key; raises
    * IllegalArgumentException if the key cannot be used.
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

  /** The first artifact that the driver does not have, and why. */
  private def unreadable(artifacts: FunctionArtifacts): Option[String] =
    artifacts.roles.iterator.flatMap { role =>
      try {
        SessionArtifact.of(artifacts.file(role))
        None
      } catch {
        case NonFatal(e) => Some(s"$role: $e")
      }
    }.nextOption()
}
