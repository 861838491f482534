// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.io.File
import java.net.URI

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.api.python.{PythonBroadcast, PythonFunction}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.util.Utils
import org.apache.spark.{JobArtifactSet, SparkContext, SparkFiles}

/** Role of an artifact for a function. `toString` is for messages. */
sealed trait ArtifactRole

object ArtifactRole {

  /** Pickled value of a broadcast variable. */
  final case class Broadcast(id: Long) extends ArtifactRole {
    override def toString: String = s"broadcast variable $id"
  }

  /** File or directory that the session has distributed under this name. */
  final case class Named(name: String) extends ArtifactRole {
    override def toString: String = s"file $name"
  }
}

/** Artifact and its location in the executor.
  *
  * @param isEncrypted
  *   true if Spark encrypted the file (`spark.io.encryption.enabled`)
  */
final case class ArtifactFile(role: ArtifactRole, file: File, isEncrypted: Boolean)

/** Artifacts that Python functions need in addition to their pickles. The driver collects the
  * artifacts, and the tasks locate the files.
  *
  * @param includes
  *   names of files on Python's import path
  * @param variables
  *   environment variables that the user set for Python
  */
final case class FunctionArtifacts(
    broadcasts: Seq[Broadcast[PythonBroadcast]],
    includes: Seq[String],
    variables: Map[String, String],
    files: SessionFiles
) {

  /** Return the role of each artifact. */
  def roles: Seq[ArtifactRole] =
    broadcasts.map(broadcast => ArtifactRole.Broadcast(broadcast.id)) ++
      files.names.map(ArtifactRole.Named)

  /** Return the location of an artifact in this process, whether or not the file exists. If the
    * process lacks a broadcast variable, fetch it.
    */
  def file(role: ArtifactRole): ArtifactFile = role match {
    case ArtifactRole.Broadcast(id) =>
      val broadcast = broadcasts.find(_.id == id).getOrElse(
        throw new NoSuchElementException(s"the functions use no broadcast variable $id")
      )
      ArtifactFile(role, new File(broadcast.value.path), SparkInternals.isEncrypted)
    case ArtifactRole.Named(name) => ArtifactFile(role, files.file(name), isEncrypted = false)
  }

  /** Return the artifacts that this executor has. If a resource manager distributes a file in its
    * own way, the file is missing here, as it is for stock Spark.
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
    distinct(functions.flatMap(_.broadcastVars.asScala)),
    functions.flatMap(_.pythonIncludes.asScala).distinct,
    functions.head.envVars.asScala.toMap.filter { case (name, _) => UserVariables.travels(name) },
    SessionFiles.current
  )

  private def distinct(broadcasts: Seq[Broadcast[PythonBroadcast]]) = {
    val known = mutable.Set.empty[Long]
    broadcasts.filter(broadcast => known.add(broadcast.id))
  }
}

/** Files and archives that the session has distributed to its executors.
  *
  * @param directory
  *   directory of a Spark Connect session, below the directory of SparkFiles
  */
final case class SessionFiles(names: Seq[String], directory: Option[String]) {

  /** Return the location of a file in this process, whether or not the file exists. */
  def file(name: String): File = {
    val shared = new File(SparkFiles.getRootDirectory())
    new File(directory.fold(shared)(new File(shared, _)), name)
  }
}

object SessionFiles {

  /** Return the files of the job being planned. */
  def current: SessionFiles = SparkContext.getActive.fold(SessionFiles(Nil, None)) { context =>
    val artifacts = JobArtifactSet.getActiveOrDefault(context)
    val names = artifacts.files.keys.map(fileName) ++ artifacts.archives.keys.map(archiveName)
    SessionFiles(names.toSeq.distinct.sorted, artifacts.state.map(_.uuid))
  }

  /** Return the names of all files and archives that the application, or the given Spark Connect
    * session, has distributed.
    */
  def names(context: SparkContext, session: Option[String]): Seq[String] = {
    val key = session.getOrElse(WithoutSession)
    val files = context.addedFiles.get(key).toSeq.flatMap(_.keys).map(fileName)
    val archives = context.addedArchives.get(key).toSeq.flatMap(_.keys).map(archiveName)
    (files ++ archives).distinct.sorted
  }

  /** Spark's name for files that belong to no Spark Connect session. */
  private val WithoutSession = "default"

  private def fileName(uri: String): String = Utils.decodeFileNameInURI(new URI(uri))

  /** Return the name of an archive's directory: the fragment after #, or the file name. */
  private def archiveName(uri: String): String =
    Option(new URI(uri).getFragment).getOrElse(fileName(uri))
}

/** Filter of the environment variables that the user sets for Python. All of them go to the pool
  * except variables that control the loader, the interpreter, Spark or the pool. The pool would
  * refuse such variables (proto/README.md).
  */
object UserVariables {
  private val Name = "[A-Za-z_][A-Za-z0-9_]*".r
  private val Reserved =
    Set("PATH", "IFS", "ENV", "BASH_ENV", "GCONV_PATH", "NLSPATH", "VIRTUAL_ENV")
  private val ReservedPrefixes = Seq(
    "LD_",
    "DYLD_",
    "PYTHON",
    "PYSPARK_",
    "SPARK_",
    "UPDRAFT_",
    "MALLOC_",
    "GLIBC_",
    "BASH_FUNC_"
  )

  def travels(name: String): Boolean =
    Name.pattern.matcher(name).matches() && !Reserved(name) && !ReservedPrefixes.exists(prefix =>
      name.startsWith(prefix)
    )
}
