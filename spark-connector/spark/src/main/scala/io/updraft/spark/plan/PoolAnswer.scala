// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression
import org.apache.spark.sql.updraft.PythonCall

import io.updraft.client.PoolCheck
import io.updraft.client.PoolCheck.Cause
import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.reasons.FallbackReason

/** Reason why a pool cannot run the functions of a query.
  *
  * @param kind
  *   fallback reason without the details
  * @param advice
  *   setting to correct
  */
private[plan] final case class PoolProblem(kind: FallbackReason, seen: String, advice: String) {

  def fallbackReason: FallbackReason = kind.about(seen)
}

/** Knowledge that the driver has about a pool while it plans a query.
  *
  * @param silence
  *   reason why the endpoint does not answer; None if it answers
  * @param unusable
  *   reason why a file named in the settings is unusable
  * @param pool
  *   answer of the pool; None if the driver did not ask
  */
private[plan] final case class PoolAnswer(
    silence: Option[String] = None,
    unusable: Option[String] = None,
    pool: Option[PoolCheck.Answer] = None
) {

  def isAccepted: Boolean = pool.exists(_.isAccepted)

  def saysSomething: Boolean = this != PoolAnswer.Nothing

  /** Return why the pool cannot run the functions, as far as the driver can tell before any task
    * runs.
    */
  def problem(
      settings: UdfSettings,
      functions: Seq[PythonFuncExpression]
  ): Option[PoolProblem] =
    silence
      .map(PoolAnswer.unreachable)
      .orElse(unusable.map(PoolAnswer.ofFile))
      .orElse(pool.flatMap(refusal(_, settings, functions)).map(PoolAnswer.of))

  /** Return the problem of an endpoint that accepts connections but sends no answer. */
  def unanswered: Option[PoolProblem] =
    pool.flatMap(said => Option(said.silence.orElse(null))).map(PoolAnswer.unreachable)

  private def refusal(
      said: PoolCheck.Answer,
      settings: UdfSettings,
      functions: Seq[PythonFuncExpression]
  ): Option[PoolCheck.Refusal] = {
    val caller = Option(said.caller.orElse(null)).flatMap(
      PoolAnswer.ofCaller(_, functions.nonEmpty, settings.connection.tenant)
    )
    if (functions.isEmpty) Option(said.refusal.orElse(null)).orElse(caller)
    else
      PythonCall
        .pythonVersions(functions)
        .flatMap(version => Option(said.refusalOf(version, SPARK_VERSION).orElse(null)))
        .headOption
        .orElse(caller)
        .orElse {
          if (settings.signing.isEmpty) Option(said.refusalOfUnsigned().orElse(null))
          else Option(said.signature.orElse(null))
        }
  }
}

private[plan] object PoolAnswer {

  /** Answer used if the driver did not ask the pool. */
  val Nothing: PoolAnswer = PoolAnswer()

  private val json = new ObjectMapper

  private def unreachable(seen: String): PoolProblem = PoolProblem(
    FallbackReason.Unreachable,
    seen,
    s"Set ${UpdraftConf.endpoint.key} to the address of the pool"
  )

  private def ofFile(problem: String): PoolProblem =
    PoolProblem(FallbackReason.UnusableFile, problem, "Correct the setting or the file")

  private def of(refusal: PoolCheck.Refusal): PoolProblem = {
    def problem(kind: FallbackReason, advice: String) = PoolProblem(kind, refusal.message, advice)
    refusal.cause match {
      case Cause.ENDPOINT => unreachable(refusal.message)
      case Cause.CERTIFICATE =>
        problem(
          FallbackReason.Certificate,
          s"Correct ${UpdraftConf.tlsCaFile.key} or ${UpdraftConf.tlsCertificateFile.key}"
        )
      case Cause.TOKEN =>
        problem(
          FallbackReason.Unauthenticated,
          s"Correct ${UpdraftConf.tokenFile.key} or ${UpdraftConf.token.key}"
        )
      case Cause.PERMISSION =>
        problem(
          FallbackReason.Permission,
          s"Use a token with this permission (${UpdraftConf.tokenFile.key}), or show this to the pool's operator"
        )
      case Cause.VERSION =>
        problem(
          FallbackReason.Version,
          s"Set ${UpdraftConf.endpoint.key} to a pool with the session's versions"
        )
      case Cause.SESSION_FUNCTIONS =>
        problem(
          FallbackReason.RegisteredOnly,
          s"Set ${UpdraftConf.endpoint.key} to a pool that runs functions from Spark sessions"
        )
      case Cause.SIGNATURE =>
        problem(
          FallbackReason.Unsigned,
          s"Set ${UpdraftConf.signingKeyFile.key} to the key of a signer that the pool knows"
        )
    }
  }

  /** Return why the pool refuses every exchange of this caller, according to the pool's answer to
    * `updraft.whoami`.
    */
  private[plan] def ofCaller(
      said: String,
      ships: Boolean,
      tenant: Option[String]
  ): Option[PoolCheck.Refusal] = Try(json.readTree(said)).toOption.flatMap { caller =>
    val name = s"the identity '${caller.path("identity").asText()}'"
    val scopes = caller.path("scopes").elements().asScala.map(_.asText()).toSeq
    val (scope, what) =
      if (ships) ("session", "run functions that it ships")
      else ("call", "run registered functions")
    val own = Option(caller.path("tenant").textValue())
    if (caller.has("scopes") && !scopes.contains(scope))
      Some(
        s"$name may not $what: it needs the scope $scope, but has ${scopes.mkString(", ")}"
      )
    else
      tenant.filter(claimed => own.exists(_ != claimed)).map { claimed =>
        s"$name is of the tenant '${own.getOrElse("")}' and cannot act for '$claimed' (${UpdraftConf.tenant.key})"
      }
  }.map(new PoolCheck.Refusal(Cause.PERMISSION, _))
}
