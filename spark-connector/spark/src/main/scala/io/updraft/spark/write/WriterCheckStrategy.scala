// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions, SparkSessionExtensionsProvider}

/** Planner strategy that puts [[WriterCheckExec]] above every command that replaces files; Spark
  * plans the command itself.
  */
case class WriterCheckStrategy(session: SparkSession) extends SparkStrategy {
  import WriterCheckStrategy.Checked

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case command: Command if command.getTagValue(Checked).isEmpty =>
      Replacement.of(session, command).toSeq.map { replacement =>
        // Mark the command, because adaptive execution plans it again. The planner works on its own
        // copy of the plan.
        command.setTagValue(Checked, ())
        WriterCheckExec(replacement, planLater(command))
      }
    case _ => Nil
  }
}

object WriterCheckStrategy {

  /** Marks a command that is below its check. */
  private val Checked = TreeNodeTag[Unit]("updraft.writerCheck")
}

/** Session extension that Spark finds in every session with the connector on its class path: the
  * data sources also work without [[io.updraft.spark.UpdraftExtensions]], and must not lose a table
  * then either.
  */
class WriterCheckExtension extends SparkSessionExtensionsProvider {

  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectPlannerStrategy(WriterCheckStrategy(_))
}
