// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{DataInputStream, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest

import scala.collection.mutable

/** Process that Spark has started in place of Python: an `updraft-python`, which only waits.
  *
  * @param arguments
  *   arguments that Spark gave to Python
  * @param environment
  *   environment that Spark gave to Python
  */
private[workers] final case class LaunchedProcess(
    pid: Long,
    arguments: Seq[String],
    environment: Map[String, String]
) {

  /** Return whether Spark only asks for Python's version. */
  def asksForVersion: Boolean = arguments.headOption.exists(_ != "-m")

  /** Return the port or the path at which Spark waits for a worker. Return None for a daemon: Spark
    * connects to the daemon to request workers.
    */
  def runnerAddress: Option[String] =
    Seq("PYTHON_WORKER_FACTORY_SOCK_PATH", "PYTHON_WORKER_FACTORY_PORT").flatMap(environment.get)
      .headOption

  /** Return the module of the workers: `-m module`, or `-m daemon module`. */
  def workerModule: String =
    arguments.lift(if (runnerAddress.nonEmpty) 1 else 2).getOrElse("pyspark.worker")

  /** Return whether a worker may serve more than one task. */
  def isReusable: Boolean = environment.contains("SPARK_REUSE_WORKER")

  /** Return the secret that the two sides of a connection over TCP exchange. */
  def secret: String = environment.getOrElse("PYTHON_WORKER_FACTORY_SECRET", "")

  /** Return whether Spark and its workers connect by paths, which need no secret. */
  def usesPaths: Boolean =
    environment.get("PYTHON_UNIX_DOMAIN_ENABLED").exists(_.equalsIgnoreCase("true"))

  /** Return the directory for the socket of a daemon; None if the daemon listens on a port. */
  def socketDirectory: Option[String] =
    environment.get("PYTHON_WORKER_FACTORY_SOCK_DIR").filter(_ => usesPaths)

  def prefersIpv6: Boolean =
    environment.get("SPARK_PREFER_IPV6").exists(_.equalsIgnoreCase("true"))
}

private[workers] object LaunchedProcess {

  private val MostTexts = 10000
  private val MostBytes = 4 << 20

  /** Read what `updraft-python` writes: the launcher's secret, the process id, the count of the
    * arguments, the arguments, and the environment. A zero byte ends each text, and an empty text
    * ends the environment. Raise an IOException for anything else.
    */
  def read(in: DataInputStream, secret: String): LaunchedProcess = {
    val texts = new Texts(in)
    val isRight =
      MessageDigest.isEqual(texts.next(secret.length).getBytes(UTF_8), secret.getBytes(UTF_8))
    if (!isRight) throw new IOException("a process connected without the secret")
    val pid = texts.number()
    val arguments = (0L until math.min(texts.number(), MostTexts.toLong)).map(_ => texts.next())
    val variables = Iterator.continually(texts.next()).takeWhile(_.nonEmpty).map { text =>
      val (name, value) = text.splitAt(math.max(text.indexOf('='), 0))
      name -> value.drop(1)
    }
    LaunchedProcess(pid, arguments.toVector, variables.toMap)
  }

  private final class Texts(in: DataInputStream) {
    private var bytesLeft = MostBytes

    def next(most: Int = MostBytes): String = {
      val bytes = mutable.ArrayBuilder.make[Byte]
      var left = math.min(most, bytesLeft)
      var byte = in.readByte()
      while (byte != 0) {
        bytes += byte
        left -= 1
        bytesLeft -= 1
        if (left < 0) throw new IOException("a process wrote more than expected")
        byte = in.readByte()
      }
      new String(bytes.result(), UTF_8)
    }

    def number(): Long =
      try next().toLong
      catch { case e: NumberFormatException => throw new IOException(e) }
  }
}
