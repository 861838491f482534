// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.sql.execution.datasources.OutputWriterFactory

import io.updraft.proto.v1.WriteCommand
import io.updraft.spark.config.WriteSettings

/** Who makes the files of one write. */
sealed trait WritePlan

/** The writer service; Spark's factory names the files. */
final case class ByWriter(
    stock: OutputWriterFactory,
    settings: WriteSettings,
    command: WriteCommand
) extends WritePlan

/** Spark's own writer. */
final case class BySpark(stock: OutputWriterFactory, reason: String) extends WritePlan
