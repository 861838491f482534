// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark

import org.apache.spark.sql.{Column, functions => spark}

/** Calls of registered functions from Scala, in the style of `org.apache.spark.sql.functions`. The
  * session needs the catalog `updraft` ([[FunctionCatalog]]).
  */
package object functions {

  /** Return a column of the function's results: one result for each row or, if the function is an
    * aggregate, for each group.
    *
    * @param name
    *   the function's name, including dots; `name@version` pins a version
    * @param arguments
    *   arguments in the order of the signature; Spark casts them to the signature's types, provided
    *   that the cast changes no value
    */
  def call(name: String, arguments: Column*): Column = callOn("default", name, arguments: _*)

  /** Return a column of the function's results from the pool named by
    * `spark.sql.catalog.updraft.pool.POOL`.
    */
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
