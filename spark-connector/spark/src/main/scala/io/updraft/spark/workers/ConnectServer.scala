// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.net.URI

/** Spark Connect server of this process, one of whose sessions a worker uses: that of foreachBatch
  * or of a listener.
  *
  * @param url
  *   URL without the token: PySpark's worker prints it
  */
private[workers] final case class ConnectServer(url: String, token: Option[String]) {

  /** Port on the loopback address. */
  def port: Int = new URI(url.takeWhile(_ != ';')).getPort

  /** Variables from which PySpark's worker knows the server. */
  def environment: Map[String, String] =
    Map(ConnectServer.Url -> url) ++ token.map(ConnectServer.Token -> _)
}

private[workers] object ConnectServer {
  private val Modules = "pyspark.sql.connect.streaming.worker."
  private val Url = "SPARK_CONNECT_LOCAL_URL"
  private val Token = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
  private val TokenParameter = "token="

  /** Whether functions of a worker module use a session of Spark Connect. */
  def servesModule(module: String): Boolean = module.startsWith(Modules)

  /** Return the server that Spark has named to the worker; None if its module uses none. */
  def of(process: LaunchedProcess): Option[ConnectServer] =
    process.environment.get(Url).filter(_ => servesModule(process.workerModule)).map { named =>
      val (tokens, rest) = named.split(';').toSeq.partition(_.startsWith(TokenParameter))
      val token = tokens.lastOption.map(_.drop(TokenParameter.length))
      ConnectServer(rest.mkString(";"), token.orElse(process.environment.get(Token)))
    }
}
