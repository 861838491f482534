// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.PythonUDTF

/** Flags that say which arguments of a table function are tables. They are for Arrow table
  * functions, which exist since Spark 4.1.
  */
object TableArguments {

  def of(udtf: PythonUDTF): Seq[Boolean] = udtf.tableArguments.getOrElse(Seq.empty)
}
