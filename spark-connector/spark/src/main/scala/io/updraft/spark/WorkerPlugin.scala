// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark

import java.util.{Collections, Map => JavaMap}

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}

import io.updraft.spark.workers.{DistributedFiles, ProcessListener}

/** Spark plugin, listed in `spark.plugins`, that runs Spark's own Python workers on the pool:
  * workers for RDDs, streaming state, data sources and everything else that [[UpdraftExtensions]]
  * does not cover. The plugin serves the processes that Spark starts if `spark.pyspark.python` is
  * `updraft-python`.
  */
class WorkerPlugin extends SparkPlugin {

  override def driverPlugin(): DriverPlugin = new DriverPlugin {
    private var context: SparkContext = _

    override def init(context: SparkContext, plugin: PluginContext): JavaMap[String, String] = {
      this.context = context
      DistributedFiles.askBy(_.answer(context))
      ProcessListener.start()
      Collections.emptyMap()
    }

    override def receive(message: Any): AnyRef = message match {
      case question: DistributedFiles.Question => question.answer(context)
      case other => throw new IllegalArgumentException(s"the plugin does not know $other")
    }
  }

  override def executorPlugin(): ExecutorPlugin = new ExecutorPlugin {
    override def init(plugin: PluginContext, extra: JavaMap[String, String]): Unit = {
      if (plugin.executorID() != WorkerPlugin.Driver)
        DistributedFiles.askBy(plugin.ask(_).asInstanceOf[Array[String]])
      ProcessListener.start()
    }
  }
}

private object WorkerPlugin {

  /** Executor id of a driver that runs tasks itself. */
  private val Driver = "driver"
}
