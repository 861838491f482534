// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark

import org.apache.spark.sql.{Column, functions => spark}

/** Calls of registered functions from Scala, as `org.apache.spark.sql.functions` has those of
  * Spark's own. The session needs the catalog `updraft` ([[FunctionCatalog]]).
  */
package object functions {

  /** A column of the function's results, one for each row, or for each group if it is an aggregate.
    *
    * @param name
    *   the function's own, with its dots; `name@version` pins a version
    * @param arguments
    *   in the order of its signature; Spark casts them to its types where that changes no value
    */
  def call(name: String, arguments: Column*): Column = callOn("default", name, arguments: _*)

  /** The same on a pool that `spark.sql.catalog.updraft.pool.POOL` names. */
  def callOn(pool: String, name: String, arguments: Column*): Column = {
    val (path, version) = name.span(_ != '@')
    val parts = "updraft" +: pool +: path.split('.')
    val quoted = parts.init :+ s"${parts.last}$version"
    spark.call_function(
      quoted.map(part => s"`${part.replace("`", "``")}`").mkString("."),
      arguments: _*
    )
  }
}
