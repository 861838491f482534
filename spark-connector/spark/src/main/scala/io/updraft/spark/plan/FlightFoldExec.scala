// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.UnaryExecNode
import org.apache.spark.sql.updraft.{PythonCall, SparkInternals}

import io.updraft.spark.task.FoldRunner
import io.updraft.spark.task.groups.Fold

/** Shared part of aggregates and windows, which read sorted rows and return rows. [[FoldRunner]]
  * does the work of a task.
  */
trait FlightFoldExec extends FlightPythonExec with UnaryExecNode {

  /** Return the functions, whose arguments refer to the columns of [[fold]]. */
  protected def pythonCall: PythonCall

  protected def fold: Fold

  /** Return settings for PySpark's worker that are specific to this kind of function. */
  protected def kindConf: Map[String, String] = Map.empty

  override def supportsColumnar: Boolean = false

  override protected def doExecute(): RDD[InternalRow] = {
    beforeTasks()
    val runner = taskRunner
    val barrier = barrierTasks
    SparkInternals.mapPartitions(child.execute()) { (partition, rows) =>
      val context = TaskContext.get()
      barrier.filter(_.include(context)) match {
        case Some(stock) => stock.rows(partition, Seq(rows), context)
        case None => runner.run(partition, rows, context)
      }
    }
  }

  override protected[plan] def taskRunner: FoldRunner = {
    val call = pythonCall
    val rows = fold
    val copied = rows.columns.indices.filter { column =>
      call.inputs.exists(_.semanticEquals(rows.columns(column)))
    }
    val spec = requestSpec(rows.columns, copied, Seq.empty, call.inputs)
    val results = udfs.map(_.dataType)
    new FoldRunner(settings, arrowCall(call, kindConf), spec, rows, results, exchangeMetrics)
  }
}
