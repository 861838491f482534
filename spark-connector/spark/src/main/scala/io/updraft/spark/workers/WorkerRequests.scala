// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{File, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.{ArtifactFile, ArtifactRole, SparkInternals, UserVariables}
import org.apache.spark.{SPARK_VERSION, SparkEnv}

import io.updraft.client.{Artifact, ClientOptions, Exchange, PoolCheck}
import io.updraft.proto.v1
import io.updraft.proto.v1.{ExchangeCommand, Limits, SessionFunction, SessionPayload, WorkerModule}
import io.updraft.spark.artifacts.{Measured, SessionArtifact}
import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.signing.Signing
import io.updraft.spark.task.TaskIdentities

/** Request that opens a worker exchange. */
private[workers] final case class WorkerRequest(
    options: ClientOptions,
    command: ExchangeCommand,
    artifacts: Seq[Artifact]
)

/** Requests for the worker exchanges of one worker. Spark's runner sends only changes to the
  * broadcast variables, so this object remembers all variables that the worker has.
  */
private[workers] final class WorkerRequests(process: LaunchedProcess) extends AutoCloseable {
  private val broadcasts = mutable.SortedMap.empty[Long, KeptBroadcast]

  private def variables = process.environment

  private def environment: Map[String, String] =
    variables.filter { case (name, _) => WorkerRequests.SessionVariables(name) } ++
      ConnectServer.of(process).map(_.environment).getOrElse(Map.empty)

  /** Return the request for the worker's next run; raise an error if the pool cannot run the
    * worker.
    */
  def of(header: WorkerHeader): WorkerRequest = {
    val settings = WorkerRequests.settings
    checkHashSeed()
    header.broadcasts.removed.foreach(id => broadcasts.remove(id).foreach(_.close()))
    header.broadcasts.added.foreach { case (id, path) =>
      broadcasts.put(id, KeptBroadcast(id, path)).foreach(_.close())
    }
    val artifacts = files ++ broadcasts.values.map(_.artifact)
    val function = SessionFunction
      .newBuilder()
      .setPythonVersion(header.pythonVersion)
      .setSparkVersion(SPARK_VERSION)
      .putAllEnvironment(environment.asJava)
      .putAllUserEnvironment(userVariables.asJava)
      .addAllArtifacts(artifacts.map(_.listed).asJava)
      .addAllPythonIncludes(header.includes.asJava)
      .setFunctionSha256(functionDigest(header))
      .build()
    val payload = SessionPayload
      .newBuilder()
      .setWorkerModule(
        WorkerModule
          .newBuilder()
          .setName(process.workerModule)
          .setOpening(ByteString.copyFrom(header.bytes))
          .setSingleUse(!process.isReusable)
      )
      .build()
      .toByteString
    val task = identity(header)
    val command = ExchangeCommand
      .newBuilder()
      .setProtocolVersion(Exchange.PROTOCOL_VERSION)
      .setSession(function)
      .setPayload(payload)
      .setTask(task)
      .setLimits(limits)
    settings.signing.filter(_ => WorkerRequests.isSigned(header)).foreach { signing =>
      val owner = task.getOwner.toBuilder
      settings.connection.tenant.foreach(owner.setTenant)
      command.setSignedStatement(Signing.ofFunction(
        // Only this driver uses the statement, and this driver opens the exchange at once.
        signing.copy(lifetimeMilliseconds =
          math.min(signing.lifetimeMilliseconds, WorkerRequests.SignatureMilliseconds)
        ),
        owner.build(),
        function,
        Signing.sha256(payload.toByteArray),
        Signing.sha256(Exchange.schemaHeader(StreamBatches.schema)),
        header.command.map(Signing.sha256)
      ))
    }
    WorkerRequest(settings.clientOptions, command.build(), artifacts)
  }

  /** Return the digest under which the pool counts the workers that a function kills. The digest
    * covers the module and the pickled function. If the header lacks the function, the digest
    * covers the task's stage and eval type instead. For planners, which have neither, the digest
    * covers only the module.
    */
  private def functionDigest(header: WorkerHeader): ByteString = {
    val function = header.command.getOrElse(
      (header.task.map(_.stageId) ++ header.evalType).mkString(" ").getBytes(UTF_8)
    )
    Signing.sha256(s"${process.workerModule}\n".getBytes(UTF_8) ++ function)
  }

  private def identity(header: WorkerHeader): v1.TaskIdentity = {
    val owner = TaskIdentities.owner(header.session.orElse(session).getOrElse(""))
    val identity = v1.TaskIdentity.newBuilder().setOwner(owner)
    header.task match {
      case Some(known) =>
        identity
          .setStageId(known.stageId)
          .setPartitionId(known.partitionId)
          .setAttemptNumber(known.attemptNumber)
          .setTaskAttemptId(known.attemptId)
          .setCpus(known.cpus)
          .putAllLocalProperties(known.properties.asJava)
          .setQueryId(known.properties.getOrElse("spark.sql.execution.id", ""))
      // In the pool's queue, an exchange may overtake others if its task already holds a worker. An
      // exchange without a task must not overtake others, so it receives a task id of its own.
      case None => identity.setTaskAttemptId(WorkerRequests.planning.decrementAndGet())
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

  private def files: Seq[SessionArtifact] = DistributedFiles.of(session).map { case (name, file) =>
    SessionArtifact.of(ArtifactFile(ArtifactRole.Named(name), file, isEncrypted = false))
  }

  /** Return the variables that the user has set for Python. Leave out variables that the launched
    * process inherited unchanged from this process.
    */
  private def userVariables: Map[String, String] = {
    val conf = SparkEnv.get.conf.getExecutorEnv.map(_._1).toSet
    variables.filter { case (name, value) =>
      UserVariables.travels(name) && (conf(name) || !sys.env.get(name).contains(value)) &&
      !WorkerRequests.SessionVariables(name) && !WorkerRequests.ShellVariables(name)
    }
  }

  override def close(): Unit = {
    broadcasts.values.foreach(_.close())
    broadcasts.clear()
  }

  private def checkHashSeed(): Unit = variables.get("PYTHONHASHSEED").filter(_ != "0").foreach {
    seed =>
      throw new IllegalStateException(
        s"the session sets PYTHONHASHSEED to $seed, but workers of a pool run with PYTHONHASHSEED=0: set it to 0"
      )
  }
}

private[workers] object WorkerRequests {

  /** Variables of PySpark's worker that a pool accepts (proto/README.md, "Session functions"). */
  private val SessionVariables = Set(
    "SPARK_HIDE_TRACEBACK",
    "SPARK_SIMPLIFIED_TRACEBACK",
    "SPARK_TRACEBACK_WITH_LOCALS",
    "PYTHON_UDF_BATCH_SIZE",
    "TZ",
    "PYSPARK_SPARK_SESSION_UUID",
    "SPARK_JOB_ARTIFACT_UUID",
    "OMP_NUM_THREADS",
    "PYTHON_TRACEBACK_DUMP_INTERVAL_SECONDS"
  )

  /** Variables that the shell of `updraft-python` sets by itself. */
  private val ShellVariables = Set("_", "SHLVL", "PWD", "OLDPWD")

  /** Longest validity of a worker's signature. The exchange may have to wait for a worker. */
  private val SignatureMilliseconds = 600000L

  /** Id of the driver among the executors. */
  private val Driver = "driver"

  private val planning = new AtomicLong

  /** Return the settings of the application, which has no session here. */
  private def settings: UdfSettings = {
    val conf = SparkEnv.get.conf
    UpdraftConf.applicationSettings(key => conf.getOption(key)).getOrElse(
      throw new IllegalStateException(
        s"set ${UpdraftConf.endpoint.key} for the application: its Python workers run on a pool"
      )
    )
  }

  /** Return whether the driver, which has the key, signs the exchange. A signature says that the
    * driver has introduced all code that the worker runs. Workers of Spark Connect sessions load no
    * code after their function. Other workers load pickles, which may contain other code.
    */
  private def isSigned(header: WorkerHeader): Boolean =
    header.session.nonEmpty && SparkEnv.get.executorId == Driver

  /** Ask the pool for the version of its Python, as "major.minor". */
  def poolPython(): String = {
    val answer = PoolCheck.ask(settings.connection.planningOptions)
    val status = answer.status().orElseThrow(() =>
      new IllegalStateException(
        answer.refusal().map[String](_.message()).or(() => answer.silence())
          .orElse("the pool does not report its version of Python")
      )
    )
    status.getPythonVersion.split('.').take(2).mkString(".")
  }
}

/** Value of a broadcast variable. Spark may delete the value's file while the worker still uses the
  * variable, so this object keeps a link to the file or a copy. An encrypted file stays encrypted.
  */
private final class KeptBroadcast(origin: ArtifactFile) extends AutoCloseable {
  if (!SparkInternals.isInLocalDirectories(origin.file)) {
    throw new IllegalArgumentException(
      s"${origin.role} has the path ${origin.file}, which is outside Spark's local directories"
    )
  }
  private val measured = Measured.of(origin)
  private val kept = {
    val file = SparkInternals.temporaryFile("broadcast", "")
    Files.delete(file.toPath)
    try Files.createLink(file.toPath, origin.file.toPath)
    catch {
      // The two directories may be on different disks.
      case _: IOException | _: UnsupportedOperationException =>
        Files.copy(origin.file.toPath, file.toPath)
    }
    origin.copy(file = file)
  }

  def artifact: SessionArtifact =
    new SessionArtifact(kept, measured.copy(open = () => Measured.read(kept)))

  override def close(): Unit = Files.deleteIfExists(kept.file.toPath): Unit
}

private object KeptBroadcast {

  /** Keep the value at `path`. If there is no path, keep the encrypted value that Spark's runner
    * has just used.
    */
  def apply(id: Long, path: Option[String]): KeptBroadcast = {
    val file = path.fold(SparkInternals.broadcastFile(id))(new File(_))
    new KeptBroadcast(ArtifactFile(ArtifactRole.Broadcast(id), file, isEncrypted = path.isEmpty))
  }
}
