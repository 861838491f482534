// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.io.File
import java.net.URI

import scala.jdk.CollectionConverters._

import org.apache.spark.api.python.{PythonBroadcast, PythonFunction}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.util.Utils
import org.apache.spark.{JobArtifactSet, SparkContext, SparkFiles}

/** What an artifact is to a function. */
sealed trait ArtifactRole

object ArtifactRole {

  /** The pickled value of a broadcast variable. */
  final case class Broadcast(id: Long) extends ArtifactRole

  /** What the session has distributed under this name, a file or a directory. */
  final case class Named(name: String) extends ArtifactRole
}

/** An artifact where it lies in the executor.
  *
  * @param isEncrypted
  *   whether Spark wrote it so that only it can read it (`spark.io.encryption.enabled`)
  */
final case class ArtifactFile(role: ArtifactRole, file: File, isEncrypted: Boolean)

/** What Python functions need beside their pickles: collected on the driver, found in the tasks.
  *
  * @param includes
  *   names of files that Python imports from
  * @param variables
  *   what the user set in the environment of Python
  */
final case class FunctionArtifacts(
    broadcasts: Seq[Broadcast[PythonBroadcast]],
    includes: Seq[String],
    variables: Map[String, String],
    files: SessionFiles
) {

  /** Where the artifacts lie in this executor; fetches the broadcast variables that it lacks. */
  def located: Seq[ArtifactFile] = broadcasts.map { broadcast =>
    val isEncrypted = SparkInternals.isEncrypted
    ArtifactFile(
      ArtifactRole.Broadcast(broadcast.id),
      new File(broadcast.value.path),
      isEncrypted
    )
  } ++ files.located
}

object FunctionArtifacts {

  def of(functions: Seq[PythonFunction]): FunctionArtifacts = FunctionArtifacts(
    functions.flatMap(_.broadcastVars.asScala).distinctBy(_.id),
    functions.flatMap(_.pythonIncludes.asScala).distinct,
    functions.head.envVars.asScala.toMap.filter { case (name, _) => UserVariables.travels(name) },
    SessionFiles.current
  )
}

/** The files and archives that the session has distributed to its executors.
  *
  * @param directory
  *   of a Spark Connect session below that of SparkFiles
  */
final case class SessionFiles(names: Seq[String], directory: Option[String]) {

  def located: Seq[ArtifactFile] = {
    lazy val root = {
      val shared = new File(SparkFiles.getRootDirectory())
      directory.fold(shared)(new File(shared, _))
    }
    // A resource manager may distribute a file in its own way: then it is not here, for stock neither.
    names.map(name =>
      ArtifactFile(ArtifactRole.Named(name), new File(root, name), isEncrypted = false)
    )
      .filter(_.file.exists())
  }
}

object SessionFiles {

  /** Those of the job that is planned now. */
  def current: SessionFiles = SparkContext.getActive.fold(SessionFiles(Nil, None)) { context =>
    val artifacts = JobArtifactSet.getActiveOrDefault(context)
    val names = artifacts.files.keys.map(fileName) ++ artifacts.archives.keys.map(archiveName)
    SessionFiles(names.toSeq.distinct.sorted, artifacts.state.map(_.uuid))
  }

  private def fileName(uri: String): String = Utils.decodeFileNameInURI(new URI(uri))

  /** An archive is unpacked under the name behind the #, if it has one. */
  private def archiveName(uri: String): String =
    Option(new URI(uri).getFragment).getOrElse(fileName(uri))
}
