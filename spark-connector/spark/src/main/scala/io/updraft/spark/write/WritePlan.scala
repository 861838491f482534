// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.sql.execution.datasources.OutputWriterFactory

import io.updraft.proto.v1.WriteCommand
import io.updraft.spark.config.WriteSettings

/** Decision about the maker of a write's files. */
sealed trait WritePlan

/** The writer service makes the files; Spark's factory names them. */
final case class ByWriter(
    stock: OutputWriterFactory,
    settings: WriteSettings,
    command: WriteCommand
) extends WritePlan

/** Spark's own writer makes the files. */
final case class BySpark(stock: OutputWriterFactory, reason: String) extends WritePlan
