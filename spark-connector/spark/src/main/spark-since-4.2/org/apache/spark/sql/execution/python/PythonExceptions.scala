// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.execution.python

import org.apache.spark.api.python.PythonException

/** Exceptions that stock Spark raises for an exception of a user's function. Since Spark 4.2, these
  * exceptions have an error condition.
  */
object PythonExceptions {

  def of(traceback: String): Throwable = new PythonException(
    errorClass = "PYTHON_EXCEPTION",
    messageParameters =
      Map("msg" -> "An exception was thrown from the Python worker", "traceback" -> traceback),
    cause = null
  )

  /** Return the traceback of such an exception; None for any other exception. */
  def traceback(e: Throwable): Option[String] = e match {
    case e: PythonException => Option(e.getMessageParameters.get("traceback"))
    case _ => None
  }
}
