// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.mapreduce.Job
import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy, UnaryExecNode}
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions, SparkSessionExtensionsProvider}

/** Check, before Spark deletes the data that a write replaces, whether the writer would make the
  * new files. If several pods stand behind the endpoint's name, the check asks one of them.
  */
object WriterCheck {

  /** True while this thread runs a checked write, so that writes nested in it are not checked
    * again.
    */
  private val answered = ThreadLocal.withInitial[java.lang.Boolean](() => false)

  /** Run a write if the writer or Spark would make its files; otherwise, raise an error. A command
    * nested in the write, such as the insert of `saveAsTable`, is not checked again.
    */
  def before[A](session: SparkSession, replacement: Replacement)(write: => A): A =
    if (answered.get) write
    else {
      require(session, replacement)
      answered.set(true)
      try write
      finally answered.remove()
    }

  private def require(session: SparkSession, replacement: Replacement): Unit = {
    import replacement.{directory, format, options, schema}
    val conf = SparkInternals.hadoopConf(session, options)
    format.plan(session, Job.getInstance(conf), options, schema) match {
      case ByWriter(_, settings, command) if settings.fallback == "fail" =>
        WriterAnswer.problem(session.sparkContext, settings, command, directory, conf).foreach {
          problem => throw new SparkException(s"cannot overwrite $directory: $problem")
        }
      // The write asks the writer again and falls back if necessary.
      case ByWriter(_, _, _) | BySpark(_, _) | LeftToSpark(_, _) => ()
    }
  }
}

/** Operator for a command that replaces files. It runs the command only if the writer has agreed to
  * write the new files or Spark's own writer may make them.
  *
  * The operator is a Spark command with a child, so that adaptive execution begins below the
  * operator. Otherwise the query's stages would run before the check.
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

/** Planner strategy that puts [[WriterCheckExec]] above every command that replaces files; Spark
  * plans the command itself.
  */
case class WriterCheckStrategy(session: SparkSession) extends SparkStrategy {
  import WriterCheckStrategy.Checked

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case command: Command if command.getTagValue(Checked).isEmpty =>
      Replacement.of(session, command).toSeq.map { replacement =>
        // Mark the command, because adaptive execution plans it again. The mark does not change the
        // caller's plan: the planner works on its own copy.
        command.setTagValue(Checked, ())
        WriterCheckExec(replacement, planLater(command))
      }
    case _ => Nil
  }
}

object WriterCheckStrategy {

  /** Mark of a command that already has a check above it. */
  private val Checked = TreeNodeTag[Unit]("updraft.writerCheck")
}

/** Session extension that Spark loads in every session with the connector on its class path. The
  * data sources also work in sessions without [[io.updraft.spark.UpdraftExtensions]]. In these
  * sessions, too, a failed write must not lose a table.
  */
class WriterCheckExtension extends SparkSessionExtensionsProvider {

  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectPlannerStrategy(WriterCheckStrategy(_))
}
