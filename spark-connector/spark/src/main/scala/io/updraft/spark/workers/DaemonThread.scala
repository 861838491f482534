// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

/** Threads that do not keep the JVM alive. */
private[workers] object DaemonThread {

  def start(name: String)(body: => Unit): Thread = {
    val thread = new Thread(() => body, name)
    thread.setDaemon(true)
    thread.start()
    thread
  }
}
