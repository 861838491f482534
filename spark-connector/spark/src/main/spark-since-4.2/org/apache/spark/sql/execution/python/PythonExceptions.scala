// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.execution.python

import org.apache.spark.api.python.PythonException

/** What stock raises for an exception of a user's function; an error condition since Spark 4.2. */
object PythonExceptions {

  def of(traceback: String): Throwable = new PythonException(
    errorClass = "PYTHON_EXCEPTION",
    messageParameters =
      Map("msg" -> "An exception was thrown from the Python worker", "traceback" -> traceback),
    cause = null
  )

  /** The traceback of such an exception; None of any other. */
  def traceback(e: Throwable): Option[String] = e match {
    case e: PythonException => Option(e.getMessageParameters.get("traceback"))
    case _ => None
  }
}
