// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.io.IOException

import scala.reflect.ClassTag

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.execution.python.PythonExceptions
import org.apache.spark.{Partition, Partitioner, SparkException, TaskContext}

/** Results of Spark's own Python workers. If the executor's Python lacks something, the error
  * explains why the function ran there at all.
  *
  * @param reason
  *   reason why the function is not on the pool
  */
private[plan] final class ExplainedRDD[T: ClassTag](rows: RDD[T], reason: String)
    extends RDD[T](rows) {

  override val partitioner: Option[Partitioner] = rows.partitioner

  override protected def getPartitions: Array[Partition] = firstParent[T].partitions

  override def compute(split: Partition, context: TaskContext): Iterator[T] = {
    val values = explain(firstParent[T].iterator(split, context))
    new Iterator[T] {
      override def hasNext: Boolean = explain(values.hasNext)
      override def next(): T = explain(values.next())
    }
  }

  private def explain[R](body: => R): R =
    try body
    catch { case e: Exception => throw explained(e) }

  private def explained(e: Exception): Throwable = PythonExceptions.traceback(e) match {
    case Some(traceback) if ExplainedRDD.lacksPackage(traceback) =>
      PythonExceptions.of(s"${traceback.stripTrailing}\n$note")
    case None if isWithoutPython(e) => new SparkException(s"${message(e).stripTrailing}\n$note", e)
    case _ => e
  }

  /** Return whether Spark reports that the executor has no Python, or a Python without PySpark. */
  private def isWithoutPython(e: Exception): Boolean = e match {
    case _: IOException => message(e).startsWith("Cannot run program")
    case _: SparkException => ExplainedRDD.lacksPackage(message(e))
    case _ => false
  }

  private def message(e: Exception): String = Option(e.getMessage).getOrElse("")

  private def note =
    s"The function ran in Spark's own Python worker, with the executor's Python, because $reason. " +
      "Install what the executor lacks, or run the function on a pool"
}

private object ExplainedRDD {
  private val Signs = Seq("ModuleNotFoundError: ", "PySparkImportError: ", "No module named ")

  private def lacksPackage(text: String): Boolean = Signs.exists(text.contains(_))
}
