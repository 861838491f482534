// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/** Operator for a command that replaces files. It runs the command only after the writer has agreed
  * to write the new files.
  *
  * It is a Spark command with a child so that adaptive execution begins below it. Otherwise the
  * query's stages would run before the check.
  */
case class WriterCheckExec(replacement: Replacement, child: SparkPlan)
    extends V2CommandExec
    with UnaryExecNode {

  override def output: Seq[Attribute] = child.output

  override def nodeName: String = "WriterCheck"

  override def stringArgs: Iterator[Any] = Iterator(replacement.directory)

  override protected def run(): Seq[InternalRow] =
    WriterCheck.before(session, replacement)(child.executeCollect().toSeq)

  override protected def withNewChildInternal(newChild: SparkPlan): WriterCheckExec =
    copy(child = newChild)
}
