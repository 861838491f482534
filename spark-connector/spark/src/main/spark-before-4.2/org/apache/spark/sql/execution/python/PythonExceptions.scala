// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.execution.python

import org.apache.spark.api.python.PythonException

/** What stock raises for an exception of a user's function: the traceback alone before Spark 4.2.
  * PySpark takes it for its own by a frame of this package on its stack.
  */
object PythonExceptions {

  def of(traceback: String): Throwable = new PythonException(traceback, null)

  /** The traceback of such an exception; None of any other. */
  def traceback(e: Throwable): Option[String] = e match {
    case e: PythonException => Option(e.getMessage)
    case _ => None
  }
}
