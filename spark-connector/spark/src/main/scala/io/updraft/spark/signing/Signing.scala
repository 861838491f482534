// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression
import org.apache.spark.sql.updraft.{FunctionArtifacts, PythonCall}

import io.updraft.spark.artifacts.SessionArtifact
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.reasons.FallbackReason

/** Whether a driver can sign the functions of a query, asked while it plans. */
object Signing {

  /** Why the functions cannot be signed, where the session signs; raises an error if its key cannot
    * be used.
    */
  def problem(
      settings: UdfSettings,
      functions: Seq[PythonFuncExpression]
  ): Option[FallbackReason] = settings.signing.filter(_ => functions.nonEmpty).flatMap { signing =>
    SigningKey.read(signing.keyFile)
    unreadable(PythonCall.artifactsOf(functions)).map(FallbackReason.UnsignedArtifact.about)
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
