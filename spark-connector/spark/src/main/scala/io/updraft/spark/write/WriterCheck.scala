// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import scala.jdk.OptionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.mapreduce.Job
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy, UnaryExecNode}
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions, SparkSessionExtensionsProvider}
import org.apache.spark.{SparkContext, SparkException}

import io.updraft.client.WriteCheck.Refusal
import io.updraft.client.{Endpoint, Exchange, WriteCheck}
import io.updraft.proto.v1.{ErrorKind, WriteCommand}
import io.updraft.spark.config.{WriteConf, WriteSettings}

/** Check of whether the writer would write, made before Spark deletes what the write replaces. If
  * several pods stand behind the endpoint's name, the check asks one of them.
  */
object WriterCheck {

  /** File name that represents all files of a write. */
  private val AnyFile = "part-00000"

  /** Set while the writer's answer is valid: writes that this thread then runs are already checked.
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
      case ByWriter(_, settings, command) =>
        ask(session.sparkContext, settings, ofAnyFile(command, directory, conf)).foreach { problem =>
          throw new SparkException(s"cannot overwrite $directory: $problem")
        }
      case BySpark(_, _) => ()
    }
  }

  private def ofAnyFile(
      command: WriteCommand,
      directory: Path,
      conf: Configuration
  ): Array[Byte] = {
    val qualified = directory.getFileSystem(conf).makeQualified(directory)
    command.toBuilder
      .setProtocolVersion(Exchange.PROTOCOL_VERSION)
      .setPath(RowFile.uri(new Path(qualified, AnyFile)))
      .build()
      .toByteArray
  }

  /** Ask from a machine that can reach the writer: a Unix socket is on the executors' machines. */
  private def ask(
      context: SparkContext,
      settings: WriteSettings,
      command: Array[Byte]
  ): Option[String] = {
    val ofThisMachine =
      settings.clientOptions.endpoint.transport() == Endpoint.Transport.UNIX
    if (ofThisMachine && !context.isLocal)
      context.parallelize(Seq(command), 1).map(problem(settings, _)).collect().head
    else problem(settings, command)
  }

  /** Return why the writer would not write such a file; retry for a while if the answer may change.
    */
  private def problem(settings: WriteSettings, encoded: Array[Byte]): Option[String] = {
    val options = settings.clientOptions
    val command = WriteCommand.parseFrom(encoded)
    settings.connection
      .whileConnecting[Option[Refusal]](!_.exists(_.temporary)) {
        WriteCheck.ask(options, command).toScala
      }
      .map { refusal =>
        s"${refusal.message} [${refusal.code}] (${WriteConf.endpoint.key} = ${settings.endpoint})" +
          advice(settings, refusal)
      }
  }

  private def advice(settings: WriteSettings, refusal: Refusal): String = refusal.code match {
    case "PERMISSION_DENIED" => WriteFailures.OutsideTheRoots
    case "FAILED_PRECONDITION" => ". Use a connector and a writer of the same release"
    case _ if refusal.kind == ErrorKind.ERROR_KIND_PROTOCOL =>
      s". Set ${WriteConf.endpoint.key} to the address of a writer"
    case _ if refusal.temporary =>
      s". Start the writer or correct ${WriteConf.endpoint.key}; the driver retries for " +
        settings.connection.connectLimit
    case _ => ""
  }
}

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
