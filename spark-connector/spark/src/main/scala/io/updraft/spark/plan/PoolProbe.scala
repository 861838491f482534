// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.io.IOException
import java.net.{InetSocketAddress, Socket, StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.SocketChannel
import java.nio.file.{Files, Path}
import java.util.Optional
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit

import org.apache.spark.SparkException
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression

import io.updraft.client.{ConnectFailure, Endpoint, PoolCheck}
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

/** Check that the driver makes before a query's tasks start: does a pool listen at the endpoint,
  * and does it accept the session? If not, the query falls back, or it fails with one clear error
  * instead of an error in each task. Answers are cached briefly, because the driver asks several
  * times while it plans a query.
  */
object PoolProbe {
  private val KeptNanoseconds = TimeUnit.SECONDS.toNanos(5)

  /** Cache key: the caller and the kind of functions.
    *
    * @param ships
    *   true if the session ships functions; false if the pool has all functions
    */
  private final case class Question(
      connection: ConnectionSettings,
      signing: Option[SigningSettings],
      ships: Boolean
  )

  private final case class CachedAnswer(answer: PoolAnswer, time: Long)

  private val answers = new ConcurrentHashMap[Question, CachedAnswer]()
  private val answered = ConcurrentHashMap.newKeySet[String]()
  private val accepting = ConcurrentHashMap.newKeySet[Question]()

  /** Return why the query falls back to Spark's own Python workers. Return None if the query runs
    * on the pool or the session does not allow the fallback. If the fallback is allowed, a slow
    * answer is a reason to fall back. A query that needs the pool waits for a slow pool, as tasks
    * do.
    */
  def problem(
      settings: UdfSettings,
      functions: Seq[PythonFuncExpression]
  ): Option[FallbackReason] =
    if (settings.fallback == "local") {
      val answer = ask(settings, functions)
      answer.problem(settings, functions).orElse(answer.unanswered).map(_.fallbackReason)
    } else None

  /** Raise an error that says what to set if the pool cannot run the functions. */
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

  /** Return advice about the fallback. It is empty for registered functions, because they exist
    * only on their pool.
    */
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
    if (!canAsk(settings.clientOptions.endpoint, driverRunsTasks)) PoolAnswer.Nothing
    else {
      val asked = question(settings, functions)
      val answer = askOrRemember(settings, asked)
      if (answer.isAccepted && answer.problem(settings, functions).isEmpty) accepting.add(asked)
      answer
    }

  /** Return whether the driver can ask the pool. Each task uses the Unix socket on its own machine.
    * So a socket that is missing on the driver's machine proves nothing, unless the tasks run on
    * that machine, too. If the socket is also missing on a task's machine, the task fails with the
    * reason.
    */
  private[plan] def canAsk(endpoint: Endpoint, driverRunsTasks: => Boolean): Boolean =
    endpoint.transport() != Endpoint.Transport.UNIX || Files.exists(Path.of(endpoint.path())) ||
      driverRunsTasks

  private def driverRunsTasks: Boolean =
    SparkSession.getActiveSession.forall(_.sparkContext.isLocal)

  private def askOrRemember(settings: UdfSettings, asked: Question): PoolAnswer = {
    /* Once a pool has accepted this session, ask the pool again only if the query may run without
     * the pool. If the query needs the pool, its tasks report any new problem. */
    val asksPool = settings.fallback == "local" || !accepting.contains(asked)
    val known = answers.get(asked)
    // The cached answer is empty if it comes from a query that did not have to ask the pool.
    val suffices = known != null && (known.answer.saysSomething || !asksPool)
    if (suffices && System.nanoTime() - known.time < KeptNanoseconds) known.answer
    else {
      val answer = connect(settings) match {
        case Some(silence) => PoolAnswer(silence = Some(silence))
        case None if asksPool => pool(settings, asked)
        case None => PoolAnswer.Nothing
      }
      answers.put(asked, CachedAnswer(answer, System.nanoTime()))
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
      val options = settings.connection.planningOptions
      PoolAnswer(pool = Some(PoolCheck.ask(options, Optional.ofNullable(signed.orNull))))
    } catch {
      case e: IllegalArgumentException => PoolAnswer(unusable = Some(e.getMessage))
    }

  /** Try to connect, and return the problem, if any. If the query needs the pool, keep trying while
    * the pool may still be starting. The time limit is longer for a pool that has answered before,
    * because such a pool is probably restarting.
    */
  private def connect(settings: UdfSettings): Option[String] = {
    val endpoint = settings.clientOptions.endpoint
    val connection = settings.connection
    def limit: Limit =
      if (settings.fallback == "local") connection.planningLimit
      else if (answered.contains(settings.endpoint)) connection.restartLimit
      else connection.startLimit
    val seen = connection.within[Option[String]](limit)(_.isEmpty)(tryOnce(endpoint, settings))
    if (seen.isEmpty) answered.add(settings.endpoint)
    seen.map(problem => s"no pool answers at ${settings.endpoint} within $limit: $problem")
  }

  /** Try to connect once and return the problem, if any. */
  private def tryOnce(endpoint: Endpoint, settings: UdfSettings): Option[String] =
    try {
      if (endpoint.transport() == Endpoint.Transport.UNIX) connectUnix(endpoint)
      else connectNetwork(endpoint, settings.connection.planningLimit.milliseconds.toInt)
      None
    } catch {
      case e: IOException => Some(ConnectFailure.of(e, endpoint))
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
