// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

/** Worker with its own process, started by Spark. The worker connects to Spark. */
private[workers] final class SimpleWorker(
    process: LaunchedProcess,
    address: String,
    logs: LogLines,
    layout: StreamLayout
) extends LaunchedWork {
  private val channel = Handshake.connect(process, address)
  @volatile private var tunnel: Option[WorkerTunnel] = None

  override def run(): Unit =
    try {
      Handshake.limited(channel) { handshake =>
        if (!process.usesPaths) handshake.authenticate(process.secret)
        handshake.introduce(process.pid)
      }
      val started =
        new WorkerTunnel(new LoopbackConnection(channel), process.pid, process, logs, layout)
      tunnel = Some(started)
      started.run()
    } finally channel.close()

  /** Do nothing: Spark kills such a worker by ending its process. */
  override def kill(pid: Int): Unit = ()

  override def close(): Unit = {
    channel.close()
    tunnel.foreach(_.kill())
  }
}
