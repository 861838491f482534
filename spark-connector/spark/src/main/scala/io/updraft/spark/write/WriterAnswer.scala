// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.SparkContext

import io.updraft.client.WriteCheck.Refusal
import io.updraft.client.{Endpoint, Exchange, WriteCheck}
import io.updraft.proto.v1.{ErrorKind, WriteCommand}
import io.updraft.spark.config.{WriteConf, WriteSettings}

/** Question to the writer before a write begins: would the writer make the files? If several pods
  * stand behind the endpoint's name, one of them answers.
  */
object WriterAnswer {

  /** File name that represents all files of a write. */
  private val AnyFile = "part-00000"

  /** Return why the writer would not make files below `directory` now; None if it would.
    *
    * A full writer is a reason only if the session allows the fallback. Otherwise the tasks wait.
    */
  def problem(
      context: SparkContext,
      settings: WriteSettings,
      command: WriteCommand,
      directory: Path,
      conf: Configuration
  ): Option[String] = ask(context, settings, ofAnyFile(command, directory, conf))

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

  /** Return why the writer would refuse the command; retry for a while if the answer may change. */
  private def problem(settings: WriteSettings, encoded: Array[Byte]): Option[String] = {
    val options = settings.clientOptions
    val command = WriteCommand.parseFrom(encoded)
    settings.connection
      .whileConnecting[Option[Refusal]](!_.exists(_.temporary)) {
        Option(WriteCheck.ask(options, command).orElse(null)).filterNot { refusal =>
          settings.fallback == "fail" && isFull(refusal)
        }
      }
      .map { refusal =>
        s"${refusal.message} [${refusal.code}] (${WriteConf.endpoint.key} = ${settings.endpoint})" +
          advice(settings, refusal)
      }
  }

  private def isFull(refusal: Refusal): Boolean =
    refusal.kind == ErrorKind.ERROR_KIND_POOL_FULL

  private def advice(settings: WriteSettings, refusal: Refusal): String = refusal.code match {
    case "PERMISSION_DENIED" => WriteFailures.OutsideTheRoots
    case "FAILED_PRECONDITION" => ". Use a connector and a writer of the same release"
    case _ if refusal.kind == ErrorKind.ERROR_KIND_PROTOCOL =>
      s". Set ${WriteConf.endpoint.key} to the address of a writer"
    case _ if isFull(refusal) => ""
    case _ if refusal.temporary =>
      s". Start the writer or correct ${WriteConf.endpoint.key}; the driver retries for " +
        settings.connection.connectLimit
    case _ => ""
  }
}
