// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.TaskContext
import org.apache.spark.memory.{MemoryConsumer, TaskMemoryManager}
import org.apache.spark.unsafe.memory.MemoryBlock

/** Task memory that is reserved piece by piece and freed as a whole. Spark cannot spill this
  * memory, so its limit is a quarter of a task's guaranteed share.
  */
final class TaskPages(manager: TaskMemoryManager)
    extends MemoryConsumer(manager, manager.pageSizeBytes, manager.getTungstenMemoryMode) {
  private[this] val pages = new ArrayBuffer[MemoryBlock]
  // Spark's page size is a sixteenth of a task's share, so four pages are the quarter.
  private[this] val mostBytes = 4 * manager.pageSizeBytes
  private[this] val pageBytes = math.min(manager.pageSizeBytes, TaskPages.MostBytesOfPage)
  private[this] var bytesOfPages = 0L
  private[this] var reserved = 0L
  private[this] var next = 0L
  private[this] var limit = 0L

  /** Return the bytes of all pages. */
  def size: Long = bytesOfPages

  /** Reserve memory, at [[base]] and [[offset]]. Return whether there was room. */
  def reserve(bytes: Long): Boolean = (next + bytes <= limit || takePage(bytes)) && {
    reserved = next
    next += bytes
    true
  }

  def base: AnyRef = pages.last.getBaseObject

  def offset: Long = reserved

  private def takePage(bytes: Long): Boolean = {
    val wanted = math.max(bytes, pageBytes)
    bytesOfPages + wanted <= mostBytes && {
      val page = manager.allocatePage(wanted, this)
      page != null && (page.size >= bytes && use(page) || giveBack(page))
    }
  }

  private def use(page: MemoryBlock): Boolean = {
    pages += page
    bytesOfPages += page.size
    next = page.getBaseOffset
    limit = next + page.size
    true
  }

  /** Give back a page that is too small. If a task is short of memory, Spark returns smaller pages
    * than the task requests.
    */
  private def giveBack(page: MemoryBlock): Boolean = {
    manager.freePage(page, this)
    false
  }

  /** Free all pages. */
  def free(): Unit = {
    pages.foreach(manager.freePage(_, this))
    pages.clear()
    bytesOfPages = 0
    next = 0
    limit = 0
  }

  // Spark never calls this: it spills only consumers that report memory as used, and this consumer
  // reports none.
  override def spill(size: Long, trigger: MemoryConsumer): Long = 0
}

object TaskPages {

  /** A quarter of G1's smallest region. Arrays of half a region or more may trigger a collection.
    */
  private val MostBytesOfPage = 256L << 10

  /** Return pages that are freed at the latest when the task ends. */
  def of(context: TaskContext): TaskPages = {
    val pages = new TaskPages(context.taskMemoryManager())
    context.addTaskCompletionListener[Unit](_ => pages.free())
    pages
  }
}
