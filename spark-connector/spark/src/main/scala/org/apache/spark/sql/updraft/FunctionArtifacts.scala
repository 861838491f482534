// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.io.File
import java.net.URI

import scala.jdk.CollectionConverters._

import org.apache.spark.api.python.{PythonBroadcast, PythonFunction}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.util.Utils
import org.apache.spark.{JobArtifactSet, SparkContext, SparkFiles}

/** What an artifact is to a function; its text is for messages. */
sealed trait ArtifactRole

object ArtifactRole {

  /** The pickled value of a broadcast variable. */
  final case class Broadcast(id: Long) extends ArtifactRole {
    override def toString: String = s"broadcast variable $id"
  }

  /** What the session has distributed under this name, a file or a directory. */
  final case class Named(name: String) extends ArtifactRole {
    override def toString: String = s"file $name"
  }
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

  /** What each artifact is to the functions. */
  def roles: Seq[ArtifactRole] =
    broadcasts.map(broadcast => ArtifactRole.Broadcast(broadcast.id)) ++
      files.names.map(ArtifactRole.Named)

  /** Where an artifact lies in this process, if it has it; fetches a broadcast variable that it
    * lacks.
    */
  def file(role: ArtifactRole): ArtifactFile = role match {
    case ArtifactRole.Broadcast(id) =>
      val broadcast = broadcasts.find(_.id == id).getOrElse(
        throw new NoSuchElementException(s"the functions use no broadcast variable $id")
      )
      ArtifactFile(role, new File(broadcast.value.path), SparkInternals.isEncrypted)
    case ArtifactRole.Named(name) => ArtifactFile(role, files.file(name), isEncrypted = false)
  }

  /** The artifacts that this executor has. A resource manager may distribute a file in its own way:
    * then it is not here, for stock neither.
    */
  def located: Seq[ArtifactFile] = roles.map(file).filter(artifact =>
    artifact.role match {
      case ArtifactRole.Broadcast(_) => true
      case ArtifactRole.Named(_) => artifact.file.exists()
    }
  )
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

  /** Where a file lies in this process, if it has it. */
  def file(name: String): File = {
    val shared = new File(SparkFiles.getRootDirectory())
    new File(directory.fold(shared)(new File(shared, _)), name)
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
