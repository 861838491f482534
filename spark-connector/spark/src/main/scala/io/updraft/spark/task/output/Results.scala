// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import java.util.ArrayDeque

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.SparkException
import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.Reply
import io.updraft.spark.columns.ResultColumns
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
  def needNoInput: Boolean = false

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

  /** One batch of output for each reply: the columns of its partner beside its own. */
  sealed abstract class OfPartners(replies: ReplyReader) extends Results {
    private[this] val byFile = new ByFile

    /** Takes the request that the reply answers from `waiting`. */
    protected def partner(reply: Reply, waiting: ArrayDeque[Kept]): Kept

    override def of(
        reply: Reply,
        waiting: ArrayDeque[Kept],
        schema: Schema
    ): Iterator[ResultBatch] = {
      val request = partner(reply, waiting)
      val columns =
        try request.columns ++ replies.read(reply, request.rows, schema)
        catch {
          case e: Throwable =>
            request.close()
            throw e
        }
      if (request.laterFiles.isEmpty)
        Iterator.single(ResultBatch(request.rows, columns, request.inputFile))
      else byFile.split(request, columns)
    }

    override def close(): Unit = byFile.close()
  }

  /** Splits the results of requests whose rows come from several files; values are not copied. */
  private final class ByFile extends AutoCloseable {
    private[this] var columns = Array.empty[ColumnVector]

    def split(request: Kept, all: Array[ColumnVector]): Iterator[ResultBatch] = {
      close()
      columns = all
      val starts = 0 +: request.laterFiles.map(_.firstRow)
      starts.iterator.zip(starts.tail.iterator ++ Iterator(request.rows)).map {
        case (from, until) =>
          val rows = until - from
          ResultBatch(rows, all.map(ResultColumns.slice(_, from, rows)), request.fileOf(from))
      }
    }

    override def close(): Unit = {
      columns.foreach(_.close())
      columns = Array.empty
    }
  }

  /** One reply for each request, in order, row for row; `function` names the functions in errors.
    */
  final class OneToOne(function: String, replies: ReplyReader) extends OfPartners(replies) {
    private[this] var last = 0L

    override protected def partner(reply: Reply, waiting: ArrayDeque[Kept]): Kept = {
      last += 1
      if (reply.sequence() != last || waiting.isEmpty) {
        throw new SparkException(
          s"the pool answered batch ${reply.sequence()} of $function, expected $last of ${last - 1 + waiting.size()}"
        )
      }
      val expected = waiting.peek().values
      if (reply.rows() != expected) {
        throw new SparkException(
          s"$function returned ${reply.rows()} rows for batch $last, which has $expected"
        )
      }
      waiting.poll()
    }

    override def ended(waiting: ArrayDeque[Kept]): Unit = if (!waiting.isEmpty) {
      throw new SparkException(
        s"the pool ended $function with ${waiting.size()} batches unanswered after batch $last"
      )
    }
  }

  /** Replies come as the function yields them; the newest request says where the input was read. */
  class FreeRunning(replies: ReplyReader) extends OfPartners(replies) {

    override protected def partner(reply: Reply, waiting: ArrayDeque[Kept]): Kept = {
      while (waiting.size() > 1) waiting.poll().close()
      val file = if (waiting.isEmpty) null else waiting.peek().inputFile
      Kept(reply.rows(), reply.rows(), Array.empty, file)
    }

    override def ended(waiting: ArrayDeque[Kept]): Unit = waiting.clear()
  }

  /** The same of functions that are called even where there is no input. */
  final class Unprompted(replies: ReplyReader) extends FreeRunning(replies) {
    override def needNoInput: Boolean = true
  }
}
