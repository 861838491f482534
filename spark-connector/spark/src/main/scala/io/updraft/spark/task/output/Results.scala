// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import java.util.ArrayDeque

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.SparkException
import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.Reply
import io.updraft.spark.columns.ResultColumns
import io.updraft.spark.task.input.RetainedRows

/** Rows of the operator's output. The consumer closes the columns.
  *
  * @param inputFile
  *   file block of the rows, as InputFiles returns it
  */
final case class ResultBatch(rows: Int, columns: Array[ColumnVector], inputFile: AnyRef)

/** Builder of the operator's output from replies and from the kept columns of their requests. */
trait Results extends AutoCloseable {

  /** Return whether the function may return rows to a task without input. */
  def needNoInput: Boolean = false

  /** Return the output of one reply. The output is computed lazily, but does not read the reply
    * after this call.
    *
    * @param waiting
    *   requests without a reply so far, oldest first
    * @param schema
    *   schema of the exchange's results
    */
  def of(reply: Reply, waiting: ArrayDeque[RetainedRows], schema: Schema): Iterator[ResultBatch]

  /** Check that the exchange may end successfully with these requests unanswered. */
  def ended(waiting: ArrayDeque[RetainedRows]): Unit

  /** Release output that was not taken. */
  override def close(): Unit
}

object Results {

  /** Results with one batch of output for each reply. The batch has the columns kept from the
    * answered request, then the reply's own columns.
    */
  sealed abstract class OfPartners(replies: ReplyReader) extends Results {
    private[this] val byFile = new ByFile

    /** Take from `waiting` the request that the reply answers. */
    protected def partner(reply: Reply, waiting: ArrayDeque[RetainedRows]): RetainedRows

    override def of(
        reply: Reply,
        waiting: ArrayDeque[RetainedRows],
        schema: Schema
    ): Iterator[ResultBatch] = {
      val request = partner(reply, waiting)
      val columns =
        try request.columns ++ resultsOf(request, reply, schema)
        catch {
          case e: Throwable =>
            request.close()
            throw e
        }
      if (request.laterFiles.isEmpty)
        Iterator.single(ResultBatch(request.rows, columns, request.inputFile))
      else byFile.split(request, columns)
    }

    private def resultsOf(request: RetainedRows, reply: Reply, schema: Schema) = {
      def read = replies.read(reply, request.calls, schema)
      request.repeats.fold(read)(_.results(read))
    }

    override def close(): Unit = byFile.close()
  }

  /** Splitter for the results of requests whose rows come from several files. It does not copy
    * values.
    */
  private final class ByFile extends AutoCloseable {
    private[this] var columns = Array.empty[ColumnVector]

    def split(request: RetainedRows, all: Array[ColumnVector]): Iterator[ResultBatch] = {
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

  /** Results with one reply for each request, in order, row for row. `function` names the functions
    * in errors.
    */
  final class OneToOne(function: String, replies: ReplyReader) extends OfPartners(replies) {
    private[this] var last = 0L

    override protected def partner(
        reply: Reply,
        waiting: ArrayDeque[RetainedRows]
    ): RetainedRows = {
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

    override def ended(waiting: ArrayDeque[RetainedRows]): Unit = if (!waiting.isEmpty) {
      throw new SparkException(
        s"the pool ended $function with ${waiting.size()} batches unanswered after batch $last"
      )
    }
  }

  /** Results whose replies come whenever the function yields them. Their input file is the file of
    * the newest row that was sent.
    */
  class FreeRunning(replies: ReplyReader) extends OfPartners(replies) {

    override protected def partner(
        reply: Reply,
        waiting: ArrayDeque[RetainedRows]
    ): RetainedRows = {
      while (waiting.size() > 1) waiting.poll().close()
      val file = if (waiting.isEmpty) null else waiting.peek().lastFile
      RetainedRows(reply.rows(), reply.rows(), Array.empty, file)
    }

    override def ended(waiting: ArrayDeque[RetainedRows]): Unit = waiting.clear()
  }

  /** Free-running results of functions that are called even without input. */
  final class Unprompted(replies: ReplyReader) extends FreeRunning(replies) {
    override def needNoInput: Boolean = true
  }
}
