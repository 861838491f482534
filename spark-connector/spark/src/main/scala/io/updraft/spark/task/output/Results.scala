// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import java.util.ArrayDeque

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.Reply
import io.updraft.spark.task.input.Kept

/** Rows of the operator's output; whoever takes them closes the columns.
  *
  * @param inputFile
  *   the block of a file that the rows come from, as InputFiles gives it
  */
final case class ResultBatch(rows: Int, columns: Array[ColumnVector], inputFile: AnyRef)

/** Makes the operator's output of replies and of what was kept of their requests. */
trait Results extends AutoCloseable {

  /** Whether the function may give rows to a task that has no input. */
  def needNoInput: Boolean

  /** The output of one reply, which is made while it is asked for; nothing is read of the reply
    * after the call.
    *
    * @param waiting
    *   the requests that were not taken yet, oldest first
    * @param schema
    *   that of the exchange's results
    */
  def of(reply: Reply, waiting: ArrayDeque[Kept], schema: Schema): Iterator[ResultBatch]

  /** The exchange ended well with these requests not taken. */
  def ended(waiting: ArrayDeque[Kept]): Unit

  /** Releases what was not handed out. */
  override def close(): Unit
}

object Results {

  /** Of one-to-one functions, which `names` says in errors. */
  def oneToOne(names: String, replies: ReplyReader): Results =
    new OfPartners(new ReplyJoin.OneToOne(names), replies, needNoInput = false)

  /** Of functions that answer their input when they like. */
  def freeRunning(replies: ReplyReader): Results =
    new OfPartners(ReplyJoin.FreeRunning, replies, needNoInput = false)

  /** Of functions that answer when they like and are called even where there is no input. */
  def unprompted(replies: ReplyReader): Results =
    new OfPartners(ReplyJoin.FreeRunning, replies, needNoInput = true)

  /** One batch of output for each reply: the columns of its partner beside its own. */
  private final class OfPartners(
      joins: ReplyJoin,
      replies: ReplyReader,
      override val needNoInput: Boolean
  ) extends Results {

    override def of(
        reply: Reply,
        waiting: ArrayDeque[Kept],
        schema: Schema
    ): Iterator[ResultBatch] = {
      val partner = joins.partner(reply, waiting)
      val columns =
        try partner.columns ++ replies.read(reply, partner.rows, schema)
        catch {
          case e: Throwable =>
            partner.close()
            throw e
        }
      Iterator.single(ResultBatch(partner.rows, columns, partner.inputFile))
    }

    override def ended(waiting: ArrayDeque[Kept]): Unit = joins.ended(waiting)

    override def close(): Unit = ()
  }
}
