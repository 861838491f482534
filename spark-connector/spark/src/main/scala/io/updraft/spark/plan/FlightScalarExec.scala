// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.util.UUID

import org.apache.spark.sql.catalyst.expressions.{Attribute, PythonUDF}
import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.Replay
import io.updraft.spark.columns.ResultColumns
import io.updraft.spark.task.ExchangeMetrics
import io.updraft.spark.task.once.CallOnce

/** Operator whose functions return a value for each row. If the session allows that, the operator
  * calls the functions only once for each distinct combination of arguments.
  */
trait FlightScalarExec extends FlightUnaryExec {

  override def udfs: Seq[PythonUDF]

  override protected def mayFuse: Boolean = true

  /** Return the columns of the results, which follow the child's columns. */
  protected def resultColumns: Seq[Attribute]

  /** Return whether the functions see one row at a time and have no effect but their results. */
  protected def mayCallOnce: Boolean

  /** Return the identity by which executors recognize the functions in later queries. */
  protected def identity: String

  /** Return the replay policy. A replay repeats only the unanswered batches. */
  override protected def replay: Replay =
    if (udfs.forall(_.deterministic)) Replay.REPLAY else Replay.NEVER

  override def output: Seq[Attribute] = child.output ++ resultColumns

  private lazy val callsOnce: Boolean =
    settings.callOncePerValue != "off" && udfs.forall(_.deterministic) && mayCallOnce

  protected def once: Option[CallOnce] =
    if (callsOnce)
      Some(CallOnce(settings.callOncePerValue == "auto", UUID.randomUUID().toString, identity))
    else None

  override protected lazy val exchangeMetrics: ExchangeMetrics =
    if (callsOnce) ExchangeMetrics.withCalls(sparkContext)
    else ExchangeMetrics.create(sparkContext)

  override def vectorTypes: Option[Seq[String]] = Some(
    child.output.map(column => ResultColumns.className(column.dataType)) ++
      resultColumns.map(column =>
        if (callsOnce) classOf[ColumnVector].getName else ResultColumns.className(column.dataType)
      )
  )

  /** Return the text for the plan, with `callOncePerValue` if it applies. */
  protected def withOnce(text: String): String =
    if (callsOnce) s"$text, callOncePerValue=${settings.callOncePerValue}" else text
}
