// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{IOException, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import org.apache.spark.internal.Logging

/** Log lines of PySpark's workers. They go to the output of the process that Spark has started,
  * where Spark looks for them. Callable from any thread.
  */
private[workers] final class LogLines(output: OutputStream) extends Logging {

  def write(lines: java.util.List[String]): Unit =
    try synchronized {
        lines.asScala.foreach(line => output.write(s"$line\n".getBytes(UTF_8)))
        output.flush()
      }
    catch { case e: IOException => logDebug(s"Spark no longer reads log lines: $e") }
}
