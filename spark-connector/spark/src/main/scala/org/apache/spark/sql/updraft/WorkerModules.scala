// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.internal.config.Python.{PYTHON_DAEMON_MODULE, PYTHON_WORKER_MODULE}
import org.apache.spark.{SparkConf, SparkEnv}

import io.updraft.spark.plan.Obstacle

/** What an application runs in the place of PySpark's own worker processes. */
object WorkerModules {
  private val PySparks =
    Seq(PYTHON_DAEMON_MODULE -> "pyspark.daemon", PYTHON_WORKER_MODULE -> "pyspark.worker")

  /** Why this application's functions stay with Spark, if they do. */
  def obstacle: Option[Obstacle] = Option(SparkEnv.get).flatMap(env => obstacle(env.conf))

  def obstacle(conf: SparkConf): Option[Obstacle] = PySparks.collectFirst {
    case (setting, own) if conf.get(setting).exists(_ != own) =>
      Obstacle.WorkerModule.about(s"${setting.key} is ${conf.get(setting).get}")
  }
}
