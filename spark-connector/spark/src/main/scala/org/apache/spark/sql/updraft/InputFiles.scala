// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.util.concurrent.atomic.AtomicReference

import org.apache.spark.rdd.InputFileBlockHolder

/** Bookkeeping that keeps `input_file_name()` and related functions correct on both sides of an
  * operator that reads ahead. Spark holds the current file in a thread-local variable. The child
  * sets this variable while the operator reads the child. The parent reads the variable while it
  * consumes results.
  *
  * Created and used on the task's thread. Within [[ofChild]] the thread has the child's variable.
  * Otherwise, it has a variable of the operator's own, which [[show]] sets.
  */
final class InputFiles {
  private[this] var child: AnyRef = FileOfThread.get
  private[this] val own: AtomicReference[AnyRef] = {
    InputFileBlockHolder.unset()
    contentOf(FileOfThread.get)
  }

  /** Run `read`, which reads the child. */
  def ofChild[T](read: => T): T = {
    FileOfThread.set(child)
    try read
    finally {
      child = FileOfThread.get
      FileOfThread.set(own)
    }
  }

  /** Return the file block that the child reads now. It is the same object as long as the block is
    * the same.
    */
  def current: AnyRef = contentOf(FileOfThread.get).get()

  /** Return whether the child reads files at all. */
  def readsFiles: Boolean = InputFileBlockHolder.getInputFilePath.numBytes() > 0

  /** Show the parent a block that [[current]] has returned. Null, for results without input,
    * changes nothing.
    */
  def show(block: AnyRef): Unit = if (block != null) own.set(block)

  private def contentOf(holder: AnyRef): AtomicReference[AnyRef] =
    holder.asInstanceOf[AtomicReference[AnyRef]]
}
