// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.io.IOException
import java.net.{InetSocketAddress, Socket, StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.SocketChannel
import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit

import scala.jdk.OptionConverters._

import org.apache.spark.SparkException
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression

import io.updraft.client.{Endpoint, PoolCheck, Unreached}
import io.updraft.spark.config.{
  ConnectionSettings,
  Limit,
  SigningSettings,
  UdfSettings,
  UpdraftConf
}
import io.updraft.spark.reasons.FallbackReason
import io.updraft.spark.signing.Signing
import io.updraft.spark.task.TaskIdentities

/** Whether a pool listens at the endpoint and takes the session, asked by the driver before a
  * query's tasks are: one clear error, or the fallback, instead of one for each task. Answers are
  * kept for a moment, as one plan asks several times.
  */
object PoolProbe {
  private val KeptNanoseconds = TimeUnit.SECONDS.toNanos(5)

  /** The caller and the kind of functions that it asks for.
    *
    * @param ships
    *   whether for functions of the session, not of the pool
    */
  private final case class Question(
      connection: ConnectionSettings,
      signing: Option[SigningSettings],
      ships: Boolean
  )

  private final case class Kept(answer: PoolAnswer, time: Long)

  private val answers = new ConcurrentHashMap[Question, Kept]()
  private val answered = ConcurrentHashMap.newKeySet[String]()
  private val accepting = ConcurrentHashMap.newKeySet[Question]()

  /** Why the query runs without the pool, where the session lets it; None: it runs on the pool. A
    * pool that may only be slow to answer is one to wait for where it is needed, as tasks do.
    */
  def problem(
      settings: UdfSettings,
      functions: Seq[PythonFuncExpression]
  ): Option[FallbackReason] =
    if (settings.fallback == "local") {
      val answer = ask(settings, functions)
      answer.problem(settings, functions).orElse(answer.unanswered).map(_.fallbackReason)
    } else None

  /** Raises an error that says what to set when the pool cannot run the functions. */
  def require(settings: UdfSettings, functions: Seq[PythonFuncExpression]): Unit = {
    val asked = question(settings, functions)
    ask(settings, functions).problem(settings, functions) match {
      case Some(problem) =>
        answers.remove(asked)
        accepting.remove(asked)
        throw new SparkException(s"${problem.seen}. ${problem.advice}${alternative(functions)}")
      case None => ()
    }
  }

  /** A registered function is nowhere but on its pool. */
  private def alternative(shipped: Seq[PythonFuncExpression]): String =
    if (shipped.isEmpty) ""
    else
      s", or set ${UpdraftConf.fallback.key} = local to run the functions in Spark's own Python workers"

  private def question(settings: UdfSettings, functions: Seq[PythonFuncExpression]): Question =
    Question(
      settings.connection,
      settings.signing.filter(_ => functions.nonEmpty),
      functions.nonEmpty
    )

  private def ask(settings: UdfSettings, functions: Seq[PythonFuncExpression]): PoolAnswer =
    if (!canAsk(Endpoint.parse(settings.endpoint), driverRunsTasks)) PoolAnswer.Nothing
    else {
      val asked = question(settings, functions)
      val answer = askOrRemember(settings, asked)
      if (answer.isAccepted && answer.problem(settings, functions).isEmpty) accepting.add(asked)
      answer
    }

  /** Whether the driver can ask: a Unix socket is on the machine of the task that uses it, so one
    * that is not here says nothing, unless the tasks run here too. Tasks fail with the reason where
    * it is not there either.
    */
  private[plan] def canAsk(endpoint: Endpoint, driverRunsTasks: => Boolean): Boolean =
    endpoint.transport() != Endpoint.Transport.UNIX || Files.exists(Path.of(endpoint.path())) ||
      driverRunsTasks

  private def driverRunsTasks: Boolean =
    SparkSession.getActiveSession.forall(_.sparkContext.isLocal)

  private def askOrRemember(settings: UdfSettings, asked: Question): PoolAnswer = {
    /* A pool that has taken this session is not asked again unless the query may run without it:
     * tasks would fail in the same words. */
    val asksPool = settings.fallback == "local" || !accepting.contains(asked)
    val known = answers.get(asked)
    // A query that may not run without the pool has not always asked what it is.
    val suffices = known != null && (known.answer.saysSomething || !asksPool)
    if (suffices && System.nanoTime() - known.time < KeptNanoseconds) known.answer
    else {
      val answer = connect(settings) match {
        case Some(silence) => PoolAnswer(silence = Some(silence))
        case None if asksPool => pool(settings, asked)
        case None => PoolAnswer.Nothing
      }
      answers.put(asked, Kept(answer, System.nanoTime()))
      answer
    }
  }

  private def pool(settings: UdfSettings, asked: Question): PoolAnswer =
    try {
      val signed = asked.signing.map { signing =>
        val owner = TaskIdentities.owner(connectSession = "")
        settings.connection.tenant.foreach(owner.setTenant)
        Signing.ofNoFunction(signing, owner.build())
      }
      val options = settings.connection.planningOptions().build()
      PoolAnswer(pool = Some(PoolCheck.ask(options, signed.toJava)))
    } catch {
      case e: IllegalArgumentException => PoolAnswer(unusable = Some(e.getMessage))
    }

  /** A pool that is not there is waited for while it may still start, unless the query may run
    * without it: one that has answered before most likely restarts.
    */
  private def connect(settings: UdfSettings): Option[String] = {
    val endpoint = Endpoint.parse(settings.endpoint)
    val connection = settings.connection
    def limit: Limit =
      if (settings.fallback == "local") connection.planningLimit
      else if (answered.contains(settings.endpoint)) connection.restartLimit
      else connection.startLimit
    val seen = connection.within[Option[String]](limit)(_.isEmpty)(tryOnce(endpoint, settings))
    if (seen.isEmpty) answered.add(settings.endpoint)
    seen.map(problem => s"no pool answers at ${settings.endpoint} within $limit: $problem")
  }

  /** What was seen where nobody answers. */
  private def tryOnce(endpoint: Endpoint, settings: UdfSettings): Option[String] =
    try {
      if (endpoint.transport() == Endpoint.Transport.UNIX) connectUnix(endpoint)
      else connectNetwork(endpoint, settings.connection.planningLimit.milliseconds.toInt)
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
