// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.PythonUDTF

/** Which arguments of a table function are tables: not known before Spark 4.1, and not needed. */
object TableArguments {

  def of(udtf: PythonUDTF): Seq[Boolean] = Seq.empty
}
