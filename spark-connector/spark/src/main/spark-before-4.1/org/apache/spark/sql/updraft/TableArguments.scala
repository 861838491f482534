// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.PythonUDTF

/** Flags that say which arguments of a table function are tables. Before Spark 4.1 they are unknown
  * and not needed.
  */
object TableArguments {

  def of(udtf: PythonUDTF): Seq[Boolean] = Seq.empty
}
