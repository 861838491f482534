// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{IOException, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import org.apache.spark.internal.Logging

/** Log lines of PySpark's workers. They are written to the output of the process that Spark has
  * started, where Spark looks for such lines. Callable from any thread.
  */
private[workers] final class LogLines(output: OutputStream) extends Logging {

  /** Write lines of a worker, with the process id by which Spark knows the worker. */
  def write(pid: Long, lines: java.util.List[String]): Unit =
    try synchronized {
        lines.asScala.map(LogLines.ofWorker(pid, _)).foreach(output.write)
        output.flush()
      }
    catch { case e: IOException => logDebug(s"Spark no longer reads log lines: $e") }
}

private object LogLines {

  /** Return the line with this process id in place of the worker's own. PySpark writes a mark, the
    * id of its process, and JSON.
    */
  private def ofWorker(pid: Long, line: String): Array[Byte] =
    (line.split(":", 3) match {
      case Array(mark, _, json) => s"$mark:$pid:$json\n"
      case _ => s"$line\n"
    }).getBytes(UTF_8)
}
