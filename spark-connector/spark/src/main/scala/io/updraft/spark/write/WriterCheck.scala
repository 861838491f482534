// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.mapreduce.Job
import org.apache.spark.SparkException
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.updraft.SparkInternals

/** Check of whether the writer would write, made before Spark deletes what the write replaces. If
  * several pods stand behind the endpoint's name, the check asks one of them.
  */
object WriterCheck {

  /** Set while the writer's answer is valid: writes that this thread then runs are already checked.
    */
  private val answered = ThreadLocal.withInitial[java.lang.Boolean](() => false)

  /** Run a write if the writer or Spark would make its files; otherwise, raise an error. A command
    * nested in the write, such as the insert of `saveAsTable`, is not checked again.
    */
  def before[A](session: SparkSession, replacement: Replacement)(write: => A): A =
    if (answered.get) write
    else {
      require(session, replacement)
      answered.set(true)
      try write
      finally answered.remove()
    }

  private def require(session: SparkSession, replacement: Replacement): Unit = {
    import replacement.{directory, format, options, schema}
    val conf = SparkInternals.hadoopConf(session, options)
    format.plan(session, Job.getInstance(conf), options, schema) match {
      case ByWriter(_, settings, command) if settings.fallback == "fail" =>
        WriterAnswer.problem(session.sparkContext, settings, command, directory, conf).foreach {
          problem => throw new SparkException(s"cannot overwrite $directory: $problem")
        }
      // The write itself asks again, and falls back.
      case ByWriter(_, _, _) | BySpark(_, _) => ()
    }
  }
}
