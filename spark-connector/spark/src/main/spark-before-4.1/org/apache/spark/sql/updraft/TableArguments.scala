// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.PythonUDTF

/** Flags of the arguments of a table function that are tables: unknown, and unneeded, before Spark
  * 4.1.
  */
object TableArguments {

  def of(udtf: PythonUDTF): Seq[Boolean] = Seq.empty
}
