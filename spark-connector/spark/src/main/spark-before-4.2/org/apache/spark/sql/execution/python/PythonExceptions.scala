// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.execution.python

import org.apache.spark.api.python.PythonException

/** Exceptions that stock Spark raises for an exception of a user's function. Before Spark 4.2,
  * these exceptions contain only the traceback. PySpark recognizes them by a stack frame of this
  * package.
  */
object PythonExceptions {

  def of(traceback: String): Throwable = new PythonException(traceback, null)

  /** Return the traceback of such an exception; None for any other exception. */
  def traceback(e: Throwable): Option[String] = e match {
    case e: PythonException => Option(e.getMessage)
    case _ => None
  }
}
