// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference}
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.types.StringType
import org.apache.spark.sql.{Row, SparkSession}

/** Answer of DESCRIBE FUNCTION for a registered function, with one row for each line. */
final case class FunctionText(text: String) extends LeafRunnableCommand {

  override val output: Seq[Attribute] =
    Seq(AttributeReference("function_desc", StringType, nullable = false)())

  override def run(session: SparkSession): Seq[Row] = text.linesIterator.map(Row(_)).toList
}
