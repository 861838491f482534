// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.util.concurrent.atomic.AtomicReference

import org.apache.spark.rdd.InputFileBlockHolder

/** Keeps `input_file_name()` and its kin right on both sides of an operator that reads ahead: Spark
  * holds "the file that is being read" in a thread-local variable, which the child sets while it is
  * read and the parent asks while it gets results.
  *
  * Made and used on the task thread. Within [[ofChild]] the thread has the child's variable,
  * otherwise one of the operator's own, which [[show]] sets.
  */
final class InputFiles {
  private[this] var child: AnyRef = InputFileBlockHolder.getThreadLocalValue()
  private[this] val own: AtomicReference[AnyRef] = {
    InputFileBlockHolder.unset()
    contentOf(InputFileBlockHolder.getThreadLocalValue())
  }

  /** Runs `read`, which reads the child. */
  def ofChild[T](read: => T): T = {
    InputFileBlockHolder.setThreadLocalValue(child)
    try read
    finally {
      child = InputFileBlockHolder.getThreadLocalValue()
      InputFileBlockHolder.setThreadLocalValue(own)
    }
  }

  /** Which block of a file the child reads now; the same object as long as it is the same block. */
  def current: AnyRef = contentOf(InputFileBlockHolder.getThreadLocalValue()).get()

  /** Whether the child reads files at all. */
  def readsFiles: Boolean = InputFileBlockHolder.getInputFilePath.numBytes() > 0

  /** Lets the parent see the block that [[current]] gave; null, for results of no input, changes
    * nothing.
    */
  def show(block: AnyRef): Unit = if (block != null) own.set(block)

  private def contentOf(holder: AnyRef): AtomicReference[AnyRef] =
    holder.asInstanceOf[AtomicReference[AnyRef]]
}
