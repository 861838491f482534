// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark

import java.util.{Collections, Map => JavaMap}

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}

import io.updraft.spark.workers.Launcher

/** Spark plugin, listed in `spark.plugins`, that runs Spark's Python workers on the pool: those of
  * RDDs, streaming state and data sources, which are no operators of [[UpdraftExtensions]]. It
  * serves the processes that Spark starts in place of Python if `spark.pyspark.python` is
  * `updraft-python`.
  */
class WorkerPlugin extends SparkPlugin {

  override def driverPlugin(): DriverPlugin = new DriverPlugin {
    override def init(context: SparkContext, plugin: PluginContext): JavaMap[String, String] = {
      Launcher.start()
      Collections.emptyMap()
    }
  }

  override def executorPlugin(): ExecutorPlugin = new ExecutorPlugin {
    override def init(context: PluginContext, extra: JavaMap[String, String]): Unit =
      Launcher.start()
  }
}
