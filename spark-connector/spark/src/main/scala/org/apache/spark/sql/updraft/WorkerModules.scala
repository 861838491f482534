// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.internal.config.Python.{PYTHON_DAEMON_MODULE, PYTHON_WORKER_MODULE}
import org.apache.spark.{SparkConf, SparkEnv}

/** Detection of modules that an application runs in place of PySpark's own worker and daemon. */
object WorkerModules {
  private val PySparks =
    Seq(PYTHON_DAEMON_MODULE -> "pyspark.daemon", PYTHON_WORKER_MODULE -> "pyspark.worker")

  /** Return the setting that replaces a module in this application, with its value; None if no
    * setting does.
    */
  def replaced: Option[String] = Option(SparkEnv.get).flatMap(env => replaced(env.conf))

  def replaced(conf: SparkConf): Option[String] = PySparks.collectFirst {
    case (setting, own) if conf.get(setting).exists(_ != own) =>
      s"${setting.key} is ${conf.get(setting).get}"
  }
}
