// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

/** Work for one launched process. */
private[workers] trait LaunchedWork extends AutoCloseable {

  /** Serve Spark until Spark or the process ends. */
  def run(): Unit

  /** Kill the worker with this process id. */
  def kill(pid: Int): Unit
}
