// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.functions

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkException
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.client.PoolCheck
import io.updraft.proto.v1.FunctionDescription
import io.updraft.spark.config.{ConfigEntry, ConnectionSettings, UpdraftConf}

/** Pools of a catalog, with their descriptions of functions.
  *
  * @param catalog
  *   name of the catalog
  * @param named
  *   endpoints by pool name
  */
final class Pools(catalog: String, named: Map[String, String]) {

  /** Return the names of the pools; the session's own pool comes first. */
  def names: Seq[String] = Pools.Default +: named.keys.filter(_ != Pools.Default).toSeq.sorted

  def contains(pool: String): Boolean = pool == Pools.Default || named.contains(pool)

  /** Return the address of a pool. If the session sets no address, raise an error that names the
    * setting.
    */
  def endpoint(pool: String): String = named.get(pool) match {
    case Some(address) => Pools.setting(catalog, pool).read(_ => Some(address)).getOrElse(address)
    case None =>
      UpdraftConf.endpoint
        .read(key => Option(SparkInternals.activeConf.getConfString(key, null)))
        .getOrElse(
          throw new IllegalArgumentException(
            s"no pool is named $pool: set ${UpdraftConf.endpoint.key} or ${Pools.setting(catalog, pool).key}"
          )
        )
  }

  /** Return a pool's functions. Raise an error if the pool does not report them. */
  def functions(pool: String): Seq[FunctionDescription] = Pools.ask(endpoint(pool))
}

object Pools {

  /** Name of the pool at the session's endpoint. */
  val Default = "default"

  /** Lifetime of a cached answer. Spark takes about this long to analyze a query, and asks for the
    * listing again at each call of a function.
    */
  private val KeptNanoseconds = TimeUnit.SECONDS.toNanos(2)

  private final case class Listing(functions: Seq[FunctionDescription], time: Long)

  private val listings = new ConcurrentHashMap[ConnectionSettings, Listing]()

  /** Return the setting that adds a pool to a catalog. */
  def setting(catalog: String, pool: String): ConfigEntry[String] = ConfigEntry(
    s"spark.sql.catalog.$catalog.pool.$pool",
    "Endpoint of a pool.",
    UpdraftConf.endpoint.values
  )

  private def ask(address: String): Seq[FunctionDescription] = {
    val settings = UpdraftConf.settingsAt(address, SparkInternals.activeConf)
    val known = listings.get(settings.connection)
    if (known != null && System.nanoTime() - known.time < KeptNanoseconds) known.functions
    else {
      val connection = settings.connection
      val answer = connection.within[PoolCheck.Answer](connection.startLimit)(_.silence.isEmpty)(
        PoolCheck.ask(connection.planningOptions)
      )
      val status = Option(answer.status.orElse(null)).getOrElse {
        val problem = Option(answer.refusal.orElse(null)).map(_.message).orElse(
          Option(answer.silence.orElse(null)).map(seen =>
            s"no answer within ${connection.startLimit}: $seen"
          )
        )
        throw new SparkException(
          s"cannot list the functions of the pool at $address: " +
            problem.getOrElse("it does not answer like a pool; it may still be starting")
        )
      }
      val functions = status.getFunctionsList.asScala.toSeq
      val now = System.nanoTime()
      // Sessions of a long-lived server keep adding new connections, so drop old listings.
      listings.values.removeIf(now - _.time >= KeptNanoseconds)
      listings.put(settings.connection, Listing(functions, now))
      functions
    }
  }
}
