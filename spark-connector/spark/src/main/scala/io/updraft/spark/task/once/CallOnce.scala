// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.once

import java.util.{Collections, LinkedHashMap, Map => JavaMap}

/** Policy of an operator that calls its functions once for each value.
  *
  * @param isAuto
  *   true if a task stops looking for repeated values when few values repeat
  * @param operator
  *   identity of the operator
  * @param functions
  *   identity of the functions
  */
final case class CallOnce(isAuto: Boolean, operator: String, functions: String) {

  /** Return whether a task that begins now looks for repeated values. */
  def isWorthwhile: Boolean =
    !CallOnce.accumulating.contains(functions) && !(isAuto && CallOnce.distinct.contains(operator))

  /** Record that the values of the operator's input seldom repeat. */
  def foundDistinct(): Unit = CallOnce.distinct.add(operator): Unit

  /** Record that the functions update accumulators. Because updates depend on the number of calls,
    * such functions are called for each row.
    */
  def foundAccumulator(): Unit = CallOnce.accumulating.add(functions): Unit
}

object CallOnce {

  /** Maximum number of operators, and of functions, that an executor remembers. */
  private val MostRemembered = 1000

  /** Operators whose values seldom repeat. */
  private val distinct = remembered()

  /** Functions that have updated accumulators. */
  private val accumulating = remembered()

  private def remembered(): java.util.Set[String] =
    Collections.synchronizedSet(Collections.newSetFromMap(new LinkedHashMap[
      String,
      java.lang.Boolean
    ] {
      override def removeEldestEntry(eldest: JavaMap.Entry[String, java.lang.Boolean]): Boolean =
        size() > MostRemembered
    }))
}

/** Measurement of how often the values of a task repeat. It ends the search if too few repeat.
  *
  * Each window has twice as many rows as the window before and needs a larger share of repeats. The
  * first windows need few repeats, because the table then still contains few values.
  */
final class RepeatWatch(once: CallOnce) {
  private[this] var startRows = 0L
  private[this] var startCalls = 0L
  private[this] var windowRows = RepeatWatch.FirstRows
  private[this] var share = RepeatWatch.FirstShare

  /** Return false if too few values repeat.
    *
    * @param rows
    *   rows since the task began
    * @param calls
    *   calls that these rows need
    */
  def continues(rows: Long, calls: Long): Boolean =
    !once.isAuto || rows - startRows < windowRows || {
      val repeats = (rows - startRows) - (calls - startCalls)
      val enough = repeats >= share * (rows - startRows)
      if (!enough) once.foundDistinct()
      startRows = rows
      startCalls = calls
      windowRows *= 2
      share = math.min(share * 2, RepeatWatch.MostShare)
      enough
    }
}

private object RepeatWatch {

  /** Rows of the first window. So many rows are enough to show repeats among up to a few hundred
    * thousand values, and searching them costs less than a millisecond.
    */
  val FirstRows = 8192L

  /** Share of repeats in the first window that makes a second window worthwhile. */
  val FirstShare = 0.01

  /** Share of repeats at which the search pays off even if the function does almost nothing. */
  val MostShare = 0.1
}
