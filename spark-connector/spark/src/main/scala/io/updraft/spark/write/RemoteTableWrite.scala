// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

/** Write of a table whose table format, not Spark, writes the data files. */
trait RemoteTableWrite {

  /** Return whether a writer may make the data files. */
  def isRemote: Boolean

  /** Return whether all rows of a task go to one open file, in their order. */
  def keepsOrder: Boolean
}
