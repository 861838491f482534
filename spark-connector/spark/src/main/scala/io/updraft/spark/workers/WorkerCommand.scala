// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.File
import java.net.URLClassLoader
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.updraft.{ArtifactFile, ArtifactRole, SparkInternals, UserVariables}
import org.apache.spark.{SPARK_VERSION, SparkEnv, SparkFiles}

import io.updraft.client.{Artifact, ClientOptions, Exchange, PoolCheck}
import io.updraft.proto.v1
import io.updraft.proto.v1.{ExchangeCommand, Limits, SessionFunction, SessionPayload, WorkerModule}
import io.updraft.spark.artifacts.SessionArtifact
import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.task.TaskIdentities

/** Request that opens a worker exchange. */
private[workers] final case class WorkerRequest(
    options: ClientOptions,
    command: ExchangeCommand,
    artifacts: Seq[Artifact]
)

/** Maker of the requests of one worker. It remembers the broadcast variables that Spark's runner
  * has told this worker, because each request names all of them.
  */
private[workers] final class WorkerCommand(process: LaunchedProcess) {
  private var broadcasts = Map.empty[Long, String]

  private def variables = process.environment

  /** Return the request for the worker's next run; raise an error if the session cannot run it. */
  def of(header: WorkerHeader): WorkerRequest = {
    val settings = WorkerCommand.settings
    checkHashSeed()
    broadcasts = broadcasts -- header.broadcasts.removed ++ header.broadcasts.added
    val artifacts = located.map(SessionArtifact.of)
    val function = SessionFunction
      .newBuilder()
      .setPythonVersion(header.pythonVersion)
      .setSparkVersion(SPARK_VERSION)
      .putAllEnvironment(variables.filter { case (name, _) =>
        WorkerCommand.SessionVariables(name)
      }.asJava)
      .putAllUserEnvironment(userVariables.asJava)
      .addAllArtifacts(artifacts.map(_.listed).asJava)
      .addAllPythonIncludes(header.includes.asJava)
    val command = ExchangeCommand
      .newBuilder()
      .setProtocolVersion(Exchange.PROTOCOL_VERSION)
      .setSession(function)
      .setPayload(payload.toByteString)
      .setTask(identity(header.task))
      .setLimits(limits)
    WorkerRequest(settings.clientOptions, command.build(), artifacts)
  }

  private def payload = SessionPayload
    .newBuilder()
    .setWorkerModule(WorkerModule.newBuilder().setName(process.workerModule))
    .build()

  private def identity(task: Option[WorkerTask]): v1.TaskIdentity = {
    val identity =
      v1.TaskIdentity.newBuilder().setOwner(TaskIdentities.owner(session.getOrElse("")))
    task match {
      case Some(known) =>
        identity
          .setStageId(known.stageId)
          .setPartitionId(known.partitionId)
          .setAttemptNumber(known.attemptNumber)
          .setTaskAttemptId(known.attemptId)
          .setCpus(known.cpus)
          .putAllLocalProperties(known.properties.asJava)
          .setQueryId(known.properties.getOrElse("spark.sql.execution.id", ""))
      // Exchanges with the same task may overtake others in the pool's queue, so each has its own.
      case None => identity.setTaskAttemptId(WorkerCommand.planning.decrementAndGet())
    }
    identity.build()
  }

  private def limits = {
    val megabytes = Seq("PYSPARK_EXECUTOR_MEMORY_MB", "PYSPARK_PLANNER_MEMORY_MB")
      .flatMap(variables.get).map(_.toLong).find(_ > 0).getOrElse(0L)
    Limits.newBuilder().setWorkerMemoryBytes(megabytes << 20).setMaxBytesPerReply(1L << 20)
  }

  private def session: Option[String] =
    variables.get("SPARK_JOB_ARTIFACT_UUID").filter(_ != "default")

  /** Return the session's files that this process has, except jars, and its broadcast variables. */
  private def located: Seq[ArtifactFile] = {
    val shared = new File(SparkFiles.getRootDirectory())
    val directory = session.fold(shared)(new File(shared, _))
    val files = Option(directory.listFiles()).toSeq.flatten
      .filterNot(file => WorkerCommand.jars(file.getCanonicalFile) || isOfSession(file))
      .sortBy(_.getName)
    files.map(file => ArtifactFile(ArtifactRole.Named(file.getName), file, isEncrypted = false)) ++
      broadcasts.toSeq.sortBy(_._1).map { case (id, path) =>
        ArtifactFile(ArtifactRole.Broadcast(id), new File(path), SparkInternals.isEncrypted)
      }
  }

  /** Return whether this is the directory of a Spark Connect session, next to the shared files. */
  private def isOfSession(file: File): Boolean =
    session.isEmpty && file.isDirectory && WorkerCommand.SessionName.pattern.matcher(
      file.getName
    ).matches()

  /** Return the variables that the user has set for Python. Those of this process stay here. */
  private def userVariables: Map[String, String] = {
    val conf = SparkEnv.get.conf.getExecutorEnv.map(_._1).toSet
    variables.filter { case (name, value) =>
      UserVariables.travels(name) && (conf(name) || !sys.env.get(name).contains(value)) &&
      !WorkerCommand.SessionVariables(name) && !WorkerCommand.ShellVariables(name)
    }
  }

  private def checkHashSeed(): Unit = variables.get("PYTHONHASHSEED").filter(_ != "0").foreach {
    seed =>
      throw new IllegalStateException(
        s"the session sets PYTHONHASHSEED to $seed, but the workers of a pool hash with 0: set it to 0"
      )
  }
}

private[workers] object WorkerCommand {

  /** Variables of PySpark's worker that a pool takes (proto/README.md, "Session functions"). */
  private val SessionVariables = Set(
    "SPARK_HIDE_TRACEBACK",
    "SPARK_SIMPLIFIED_TRACEBACK",
    "SPARK_TRACEBACK_WITH_LOCALS",
    "PYTHON_UDF_BATCH_SIZE",
    "TZ",
    "SPARK_JOB_ARTIFACT_UUID",
    "OMP_NUM_THREADS",
    "PYTHON_TRACEBACK_DUMP_INTERVAL_SECONDS"
  )

  /** Variables that the shell of `updraft-python` sets by itself. */
  private val ShellVariables = Set("_", "SHLVL", "PWD", "OLDPWD")

  private val SessionName = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}".r

  private val planning = new AtomicLong

  /** Return the settings of the application, which has no session here. */
  private def settings: UdfSettings = {
    val conf = SparkEnv.get.conf
    UpdraftConf.settings(key => conf.getOption(key)).getOrElse(
      throw new IllegalStateException(
        s"set ${UpdraftConf.endpoint.key} for the application: its Python workers run on a pool"
      )
    )
  }

  /** Ask the pool for the version of its Python, as "major.minor". */
  def poolPython(): String = {
    val answer = PoolCheck.ask(settings.connection.planningOptions)
    val status = answer.status().orElseThrow(() =>
      new IllegalStateException(
        answer.refusal().map[String](_.message()).or(() => answer.silence())
          .orElse("the pool does not tell its version of Python")
      )
    )
    status.getPythonVersion.split('.').take(2).mkString(".")
  }

  /** Return whether Spark has put this file next to the session's files as a jar. */
  private def jars(file: File): Boolean = file.getName.endsWith(".jar") &&
    Iterator
      .iterate(Thread.currentThread().getContextClassLoader)(_.getParent)
      .takeWhile(_ != null)
      .collect { case loader: URLClassLoader => loader.getURLs.toSeq }
      .flatten
      .exists(url => url.getProtocol == "file" && new File(url.toURI).getCanonicalFile == file)
}
