// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.lang.reflect.InvocationTargetException

/** Calls of Spark methods that gain parameters with defaults between versions. Methods are looked
  * up by name, so that one jar runs on several versions.
  */
private[updraft] object Defaults {

  /** Call the only method of an object that has this name and at least this many parameters. */
  def call(target: AnyRef, name: String, arguments: Seq[AnyRef]): AnyRef = {
    val method = target.getClass.getMethods
      .find(method => method.getName == name && method.getParameterCount >= arguments.length)
      .getOrElse(throw new NoSuchMethodError(s"${target.getClass.getName}.$name"))
    val more = (arguments.length until method.getParameterCount).map { index =>
      target.getClass.getMethod(s"$name$$default$$${index + 1}").invoke(target)
    }
    try method.invoke(target, arguments ++ more: _*)
    catch { case e: InvocationTargetException => throw e.getCause }
  }
}
