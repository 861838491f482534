// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.SparkContext
import org.apache.spark.util.LongAccumulator

import io.updraft.proto.v1.Receipt

/** What the files of one write cost, as named accumulators: Spark shows them with the write's
  * stage, for each task and in sum. (The metrics of Spark's write command are a fixed list.)
  */
final class WriteMetrics(
    files: LongAccumulator,
    rawBytes: LongAccumulator,
    fileBytes: LongAccumulator,
    throttledMilliseconds: LongAccumulator,
    encodeMilliseconds: LongAccumulator,
    storeMilliseconds: LongAccumulator,
    waitedMilliseconds: LongAccumulator
) extends Serializable {

  def finished(receipt: Receipt): Unit = {
    files.add(1)
    rawBytes.add(receipt.getRawBytes)
    fileBytes.add(receipt.getFileBytes)
    throttledMilliseconds.add(receipt.getTimings.getAdmissionMilliseconds)
    encodeMilliseconds.add(receipt.getTimings.getEncodeMilliseconds)
    storeMilliseconds.add(receipt.getTimings.getStoreMilliseconds)
  }

  /** A file has ended, in whatever way. */
  def closed(waitedNanos: Long): Unit = waitedMilliseconds.add(waitedNanos / 1000000)
}

object WriteMetrics {

  def create(context: SparkContext): WriteMetrics = {
    def named(what: String) = context.longAccumulator(s"updraft writer: $what")
    new WriteMetrics(
      files = named("files"),
      rawBytes = named("bytes of rows"),
      fileBytes = named("bytes of files"),
      throttledMilliseconds = named("ms throttled by the quota"),
      encodeMilliseconds = named("ms of encoding"),
      storeMilliseconds = named("ms of storing"),
      waitedMilliseconds = named("ms that tasks waited")
    )
  }
}
