// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.io.IOException
import java.net.{InetSocketAddress, Socket, StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.SocketChannel
import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit

import scala.jdk.OptionConverters._

import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression
import org.apache.spark.sql.updraft.PythonCall
import org.apache.spark.{SPARK_VERSION, SparkException}

import io.updraft.client.{Endpoint, PoolCheck, Unreached}
import io.updraft.proto.v1.ErrorKind
import io.updraft.spark.config.{ConnectionSettings, UdfSettings, UpdraftConf}
import io.updraft.spark.reasons.FallbackReason

/** Whether a pool listens at the endpoint and takes the session, asked by the driver before a
  * query's tasks are: one clear error, or the fallback, instead of one for each task. Answers are
  * kept for a moment, as one plan asks several times.
  */
object PoolProbe extends Logging {
  private val KeptNanoseconds = TimeUnit.SECONDS.toNanos(5)

  /** What is known of a pool.
    *
    * @param silence
    *   why nobody answers; None: somebody does
    * @param pool
    *   what it says; None where it was not asked or said nothing of use
    */
  private final case class Answer(
      silence: Option[String],
      pool: Option[PoolCheck.Answer],
      time: Long
  ) {

    /** Why the pool cannot run the functions, as far as can be known without a task. */
    def problem(
        settings: UdfSettings,
        functions: Seq[PythonFuncExpression]
    ): Option[FallbackReason] =
      silence.map(FallbackReason.Unreachable.about).orElse(refusal(settings, functions).map(reason))

    /** That something accepts connections and says nothing. */
    def unanswered: Option[FallbackReason] =
      pool.flatMap(_.silence.toScala).map(FallbackReason.Unreachable.about)

    def refusal(
        settings: UdfSettings,
        functions: Seq[PythonFuncExpression]
    ): Option[PoolCheck.Refusal] = pool.flatMap { said =>
      PythonCall
        .pythonVersions(functions)
        .flatMap(version => said.refusalOf(version, SPARK_VERSION).toScala)
        .headOption
        .orElse {
          if (functions.nonEmpty && settings.signing.isEmpty) said.refusalOfUnsigned().toScala
          else None
        }
    }
  }

  private val answers = new ConcurrentHashMap[ConnectionSettings, Answer]()
  private val answered = ConcurrentHashMap.newKeySet[String]()
  private val accepting = ConcurrentHashMap.newKeySet[ConnectionSettings]()

  /** Why the query runs without the pool, where the session lets it; None: it runs on the pool. A
    * pool that may only be slow to answer is one to wait for where it is needed, as tasks do.
    */
  def problem(
      settings: UdfSettings,
      functions: Seq[PythonFuncExpression]
  ): Option[FallbackReason] =
    if (settings.fallback == "local") {
      val answer = ask(settings)
      answer.problem(settings, functions).orElse(answer.unanswered)
    } else None

  /** Raises an error that says what to set when the pool cannot run the functions. */
  def require(settings: UdfSettings, functions: Seq[PythonFuncExpression]): Unit = {
    val answer = ask(settings)
    answer.problem(settings, functions).foreach { reason =>
      answers.remove(settings.connection)
      accepting.remove(settings.connection)
      val problem = answer.silence.orElse(answer.refusal(settings, functions).map(_.message))
      throw new SparkException(
        s"${problem.getOrElse(reason.text)}. ${advice(reason)}${alternative(functions)}"
      )
    }
  }

  /** A registered function is nowhere but on its pool. */
  private def alternative(shipped: Seq[PythonFuncExpression]): String =
    if (shipped.isEmpty) ""
    else
      s", or set ${UpdraftConf.fallback.key} = local to run the functions in Spark's own Python workers"

  private def advice(reason: FallbackReason): String = reason.name match {
    case FallbackReason.Unauthenticated.name =>
      s"Correct ${UpdraftConf.tokenFile.key} or ${UpdraftConf.token.key}"
    case FallbackReason.Version.name =>
      s"Set ${UpdraftConf.endpoint.key} to a pool of the session's versions"
    case FallbackReason.Unsigned.name =>
      s"Set ${UpdraftConf.signingKeyFile.key} to the key of a signer that the pool knows"
    case _ => s"Set ${UpdraftConf.endpoint.key} to where the pool listens"
  }

  private def reason(refusal: PoolCheck.Refusal): FallbackReason = {
    val kind = refusal.kind match {
      case ErrorKind.ERROR_KIND_UNAUTHENTICATED => FallbackReason.Unauthenticated
      case ErrorKind.ERROR_KIND_VERSION => FallbackReason.Version
      case ErrorKind.ERROR_KIND_FUNCTION_REFUSED => FallbackReason.Unsigned
      case _ => FallbackReason.Unreachable
    }
    kind.about(refusal.message)
  }

  private def ask(settings: UdfSettings): Answer =
    if (!canAsk(Endpoint.parse(settings.endpoint), driverRunsTasks)) Answer(None, None, 0)
    else askOrRemember(settings)

  /** Whether the driver can ask: a Unix socket is on the machine of the task that uses it, so one
    * that is not here says nothing, unless the tasks run here too. Tasks fail with the reason where
    * it is not there either.
    */
  private[plan] def canAsk(endpoint: Endpoint, driverRunsTasks: => Boolean): Boolean =
    endpoint.transport() != Endpoint.Transport.UNIX || Files.exists(Path.of(endpoint.path())) ||
      driverRunsTasks

  private def driverRunsTasks: Boolean =
    SparkSession.getActiveSession.forall(_.sparkContext.isLocal)

  private def askOrRemember(settings: UdfSettings): Answer = {
    val known = answers.get(settings.connection)
    // A query that may not run without the pool has not always asked what it is.
    val suffices =
      known != null && (known.silence.nonEmpty || known.pool.nonEmpty || !asksPool(settings))
    if (suffices && System.nanoTime() - known.time < KeptNanoseconds) known
    else {
      val silence = connect(settings)
      val said = if (silence.isEmpty && asksPool(settings)) pool(settings) else None
      val answer = Answer(silence, said, System.nanoTime())
      answers.put(settings.connection, answer)
      answer
    }
  }

  /** A pool that has taken this session is not asked again unless the query may run without it:
    * tasks would fail in the same words.
    */
  private def asksPool(settings: UdfSettings): Boolean =
    settings.fallback == "local" || !accepting.contains(settings.connection)

  private def pool(settings: UdfSettings): Option[PoolCheck.Answer] =
    try {
      val answer = PoolCheck.ask(settings.clientOptions())
      if (answer.isAccepted) accepting.add(settings.connection)
      Some(answer)
    } catch {
      // Files that the executors may have: tasks fail with the reason if they do not.
      case e: IllegalArgumentException =>
        logInfo(s"the pool at ${settings.endpoint} was not asked for its versions: ${e.getMessage}")
        None
    }

  /** A pool that is not there is waited for if it has been, unless the query may run without it. */
  private def connect(settings: UdfSettings): Option[String] = {
    val endpoint = Endpoint.parse(settings.endpoint)
    val connection = settings.connection
    def once: Option[String] = tryOnce(endpoint, settings)
    val (seen, limit) =
      if (settings.fallback != "local" && answered.contains(settings.endpoint))
        (connection.whileRestarting[Option[String]](_.isEmpty)(once), connection.restartLimit)
      else (connection.whileConnecting[Option[String]](_.isEmpty)(once), connection.connectLimit)
    if (seen.isEmpty) answered.add(settings.endpoint)
    seen.map(problem => s"no pool answers at ${settings.endpoint} within $limit: $problem")
  }

  /** What was seen where nobody answers. */
  private def tryOnce(endpoint: Endpoint, settings: UdfSettings): Option[String] =
    try {
      if (endpoint.transport() == Endpoint.Transport.UNIX) connectUnix(endpoint)
      else connectNetwork(endpoint, settings.connection.connectTimeoutMilliseconds.toInt)
      None
    } catch {
      case e: IOException => Some(Unreached.of(e, endpoint))
    }

  private def connectNetwork(endpoint: Endpoint, timeoutMilliseconds: Int): Unit = {
    val socket = new Socket()
    try socket.connect(new InetSocketAddress(endpoint.host(), endpoint.port()), timeoutMilliseconds)
    finally socket.close()
  }

  private def connectUnix(endpoint: Endpoint): Unit = {
    val channel = SocketChannel.open(StandardProtocolFamily.UNIX)
    try channel.connect(UnixDomainSocketAddress.of(endpoint.path()))
    finally channel.close()
  }
}
