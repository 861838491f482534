// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import org.apache.spark.sql.connector.metric.{CustomSumMetric, CustomTaskMetric}

/** Metric of a table's write: 1 if Iceberg's own writer has made its data files, 0 if the writer
  * service has.
  *
  * @param description
  *   name that Spark shows, with the reason if the driver knew it when it planned the write
  */
final class FilesByIceberg(override val description: String) extends CustomSumMetric {

  /** Create an instance without a reason, which Spark makes by class name to add up values. */
  def this() = this("")

  override def name(): String = FilesByIceberg.Name
}

object FilesByIceberg {
  private val Name = "updraftFilesByIceberg"

  def apply(write: IcebergWrite): FilesByIceberg =
    new FilesByIceberg(
      "writes by Iceberg's own writer" + write.reason.fold("")(reason => s", because of $reason")
    )

  /** Return the metric's value; None if the write failed before it chose a writer. */
  def count(write: IcebergWrite): Option[CustomTaskMetric] = write.madeByIceberg.map { byIceberg =>
    new CustomTaskMetric {
      override def name(): String = Name
      override def value(): Long = if (byIceberg) 1 else 0
    }
  }
}
