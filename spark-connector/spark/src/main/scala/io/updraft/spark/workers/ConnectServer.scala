// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.net.URI

/** Spark Connect server in this process. A worker that runs foreachBatch or a listener uses a
  * session of this server.
  *
  * @param url
  *   URL without the token, because PySpark's worker prints the URL
  */
private[workers] final case class ConnectServer(url: String, token: Option[String]) {

  /** Return the port on the loopback address. */
  def port: Int = new URI(url.takeWhile(_ != ';')).getPort

  /** Return the variables that tell PySpark's worker where the server is. */
  def environment: Map[String, String] =
    Map(ConnectServer.Url -> url) ++ token.map(ConnectServer.Token -> _)
}

private[workers] object ConnectServer {
  private val Modules = "pyspark.sql.connect.streaming.worker."
  private val Url = "SPARK_CONNECT_LOCAL_URL"
  private val Token = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
  private val TokenParameter = "token="

  /** Return whether functions of a worker module use a session of Spark Connect. */
  def servesModule(module: String): Boolean = module.startsWith(Modules)

  /** Return the server whose URL Spark gave the worker; None if the worker's module uses no
    * session.
    */
  def of(process: LaunchedProcess): Option[ConnectServer] =
    process.environment.get(Url).filter(_ => servesModule(process.workerModule)).map { named =>
      val (tokens, rest) = named.split(';').toSeq.partition(_.startsWith(TokenParameter))
      val token = tokens.lastOption.map(_.drop(TokenParameter.length))
      ConnectServer(rest.mkString(";"), token.orElse(process.environment.get(Token)))
    }
}
