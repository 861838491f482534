// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions, SparkSessionExtensionsProvider}

/** Puts [[WriterCheckExec]] above every command that replaces files; Spark plans the command
  * itself.
  */
case class WriterCheckStrategy(session: SparkSession) extends SparkStrategy {
  import WriterCheckStrategy.Checked

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case command: Command if command.getTagValue(Checked).isEmpty =>
      Replacement.of(session, command).toSeq.map { replacement =>
        // Adaptive execution plans the command again; the planner's plan is a copy of its own.
        command.setTagValue(Checked, ())
        WriterCheckExec(replacement, planLater(command))
      }
    case _ => Nil
  }
}

object WriterCheckStrategy {

  /** On a command that stands under its check. */
  private val Checked = TreeNodeTag[Unit]("updraft.writerCheck")
}

/** Found by Spark in every session whose class path has the connector: the data sources work
  * without [[io.updraft.spark.UpdraftExtensions]] too, and must not lose a table then.
  */
class WriterCheckExtension extends SparkSessionExtensionsProvider {

  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectPlannerStrategy(WriterCheckStrategy(_))
}
