// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.PythonUDTF

/** Which arguments of a table function are tables; asked for by Arrow table functions, which came
  * with Spark 4.1.
  */
object TableArguments {

  def of(udtf: PythonUDTF): Seq[Boolean] = udtf.tableArguments.getOrElse(Seq.empty)
}
