// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import java.util.ArrayDeque

import org.apache.spark.SparkException

import io.updraft.client.Reply
import io.updraft.spark.task.input.Kept

/** Which request's columns a reply is joined to. */
trait ReplyJoin {

  /** Takes the request that the reply answers from `waiting`. */
  def partner(reply: Reply, waiting: ArrayDeque[Kept]): Kept

  /** The exchange ended well with these requests unanswered. */
  def ended(waiting: ArrayDeque[Kept]): Unit
}

object ReplyJoin {

  /** One reply for each request, in order, row for row. */
  final class OneToOne(function: String) extends ReplyJoin {
    private[this] var last = 0L

    override def partner(reply: Reply, waiting: ArrayDeque[Kept]): Kept = {
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
  object FreeRunning extends ReplyJoin {

    override def partner(reply: Reply, waiting: ArrayDeque[Kept]): Kept = {
      while (waiting.size() > 1) waiting.poll().close()
      val file = if (waiting.isEmpty) null else waiting.peek().inputFile
      Kept(reply.rows(), reply.rows(), Array.empty, file)
    }

    override def ended(waiting: ArrayDeque[Kept]): Unit = waiting.clear()
  }
}
