// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{ByteArrayInputStream, EOFException, InputStream}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.updraft.SparkInternals

/** Task that a worker serves.
  *
  * @param properties
  *   local properties that a function may see
  */
final case class WorkerTask(
    stageId: Int,
    partitionId: Int,
    attemptNumber: Int,
    attemptId: Long,
    cpus: Int,
    properties: Map[String, String]
)

/** Changes that Spark's runner makes to the broadcast variables of a reused worker.
  *
  * @param added
  *   path of the pickled value of each new variable, by id; None if Spark has encrypted the value
  * @param decryption
  *   port or path at which Spark serves the decrypted values of `added`, and the secret
  */
final case class BroadcastChanges(
    added: Map[Long, Option[String]],
    removed: Set[Long],
    decryption: Option[(String, Option[String])]
) {

  /** Return text without the secret. */
  override def toString: String = s"BroadcastChanges(${added.keySet}, $removed)"
}

/** Start of the stream from Spark's runner to PySpark's worker.
  *
  * @param pythonVersion
  *   version of the driver's Python, as "major.minor"
  * @param task
  *   task; None for a worker that the driver uses outside of tasks
  * @param session
  *   id of the Spark Connect session that the worker uses
  * @param services
  *   services of this process that the worker may call, with their secrets, by port or path
  * @param hasLateService
  *   true if the port or path of one more service follows the header
  * @param evalType
  *   PythonEvalType of the task's function
  * @param command
  *   pickled function of an RDD, a stream or a Spark Connect session. None for other workers
  * @param bytes
  *   start of the stream for a worker on the pool: without secrets, without broadcast variables,
  *   which travel as artifacts, and without local properties that a function may not see
  */
final case class WorkerHeader(
    pythonVersion: String,
    task: Option[WorkerTask],
    session: Option[String],
    includes: Seq[String],
    broadcasts: BroadcastChanges,
    services: Map[String, Option[String]],
    hasLateService: Boolean,
    evalType: Option[Int],
    command: Option[Array[Byte]],
    bytes: Array[Byte]
)

object WorkerHeader {

  private val TaskModule = "pyspark.worker"
  private val PlanningModules = "pyspark.sql.worker."
  private val StreamingModules = "pyspark.sql.streaming."
  private val StateModule = "pyspark.sql.streaming.transform_with_state_driver_worker"
  private val NoBroadcasts = BroadcastChanges(Map.empty, Set.empty, None)
  private type Services = Map[String, Option[String]]

  /** Eval types of `transformWithState`, in PySpark's PythonEvalType. */
  private val StatefulTypes = 211 to 214

  /** Eval type of functions over RDDs. */
  private val RddType = 0

  /** Key of the state server's port or path. */
  private val StateServer = "state_server_socket_port"

  /** Port number that announces a path instead. */
  private val PathFollows = -1

  /** Mark in front of a header's length. */
  private val FramedHeader = -8

  private val json = new ObjectMapper

  /** Read the header that Spark writes for a module. Block until the header is complete. */
  def read(module: String, stream: InputStream, layout: StreamLayout): WorkerHeader = {
    val copy = new HeaderCopy(stream)
    if (module == TaskModule) if (layout.isFramed) framed(copy, layout) else ofTask(copy, layout)
    else if (ConnectServer.servesModule(module)) ofSession(copy)
    else if (module.startsWith(PlanningModules)) ofPlanner(copy)
    else if (module.startsWith(StreamingModules)) ofStream(module, copy)
    else
      throw new UnsupportedOperationException(
        s"Updraft does not run the worker module $module: only $TaskModule and PySpark's modules for data " +
          "sources, table functions and streams run on a pool, without spark.python.worker.module"
      )
  }

  /** Copy the version of Python, the id of the session, and the function. */
  private def ofSession(copy: HeaderCopy): WorkerHeader = {
    val version = copy.text()
    val session = copy.text()
    val command = copy.block()
    untasked(version, copy).copy(session = Some(session), command = Some(command))
  }

  private def ofPlanner(copy: HeaderCopy): WorkerHeader = {
    val version = copy.text()
    val includes = files(copy)
    val changes = broadcasts(copy)
    untasked(version, copy).copy(includes = includes, broadcasts = changes)
  }

  private def ofStream(module: String, copy: HeaderCopy): WorkerHeader = {
    val version = copy.text()
    val isStateful = module == StateModule
    val includes = if (isStateful) Seq.empty else files(copy)
    val command = copy.block()
    untasked(version, copy)
      .copy(includes = includes, hasLateService = isStateful, command = Some(command))
  }

  private def untasked(version: String, copy: HeaderCopy) = WorkerHeader(
    version,
    task = None,
    session = None,
    includes = Seq.empty,
    broadcasts = NoBroadcasts,
    services = Map.empty,
    hasLateService = false,
    evalType = None,
    command = None,
    bytes = copy.bytes
  )

  /** Read the port or the path of a service, and copy it. */
  def service(copy: HeaderCopy): String = {
    val port = copy.int()
    if (port == PathFollows) copy.text() else port.toString
  }

  private def framed(frame: HeaderCopy, layout: StreamLayout): WorkerHeader = {
    val mark = frame.readInt()
    if (mark != FramedHeader)
      throw new NotPySparkException(s"it begins with $mark, not with $FramedHeader")
    val message = new HeaderCopy(new ByteArrayInputStream(frame.readBytes(frame.readCount())))
    val header =
      try ofTask(message, layout)
      catch { case _: EOFException => throw new NotPySparkException("its frame is too short") }
    message.rest()
    val bytes = message.bytes
    frame.write(FramedHeader)
    frame.write(bytes.length)
    header.copy(bytes = frame.bytes ++ bytes)
  }

  private def ofTask(copy: HeaderCopy, layout: StreamLayout): WorkerHeader = {
    copy.int(): Unit
    val version = copy.text()
    val (task, barrier) = if (layout.hasJsonTask) jsonTask(copy) else numberedTask(copy, layout)
    val includes = files(copy)
    val changes = broadcasts(copy)
    val evalType = copy.int()
    val state = if (StatefulTypes.contains(evalType)) stateServer(copy, layout) else Map.empty
    val command = if (evalType == RddType) Some(rddCommand(copy, layout)) else None
    untasked(version, copy).copy(
      task = Some(task),
      includes = includes,
      broadcasts = changes,
      services = barrier ++ state,
      evalType = Some(evalType),
      command = command
    )
  }

  private def jsonTask(copy: HeaderCopy): (WorkerTask, Services) = {
    val root =
      try json.readTree(copy.readText()).asInstanceOf[ObjectNode]
      catch {
        case e @ (_: JsonProcessingException | _: ClassCastException) =>
          throw new NotPySparkException(s"its task is not JSON: $e")
      }
    val secret = Option(root.get("secret")).filterNot(_.isNull).map(_.asText())
    if (secret.nonEmpty) root.put("secret", ""): Unit
    val stated = root.get("localProperties").properties().asScala
      .map(entry => entry.getKey -> entry.getValue.asText()).toMap
    val visible = SparkInternals.visible(stated)
    val properties = root.putObject("localProperties")
    visible.foreach { case (name, value) => properties.put(name, value) }
    copy.write(json.writeValueAsString(root))
    val task = WorkerTask(
      root.get("stageId").asInt(),
      root.get("partitionId").asInt(),
      root.get("attemptNumber").asInt(),
      root.get("taskAttemptId").asLong(),
      root.get("cpus").asInt(),
      visible
    )
    val barrier =
      if (root.get("isBarrier").asBoolean()) Map(root.get("connInfo").asText() -> secret)
      else Map.empty[String, Option[String]]
    (task, barrier)
  }

  private def numberedTask(copy: HeaderCopy, layout: StreamLayout): (WorkerTask, Services) = {
    val isBarrier = copy.boolean()
    val barrier: Services =
      if (isBarrier || layout.hasUnusedBarrierPort) barrierService(copy) else Map.empty
    val stage = copy.int()
    val partition = copy.int()
    val attempt = copy.int()
    val attemptId = copy.long()
    val cpus = copy.int()
    (0 until copy.count()).foreach { _ =>
      copy.text(): Unit
      copy.text(): Unit
      (0 until copy.count()).foreach(_ => copy.text())
    }
    val visible = SparkInternals.visible(
      (0 until copy.readCount()).map(_ => copy.readText() -> copy.readText()).toMap
    )
    copy.write(visible.size)
    visible.foreach { case (name, value) =>
      copy.write(name)
      copy.write(value)
    }
    val task = WorkerTask(stage, partition, attempt, attemptId, cpus, visible)
    (task, barrier.filter(_ => isBarrier))
  }

  private def barrierService(copy: HeaderCopy): Services = {
    val port = copy.int()
    if (port == PathFollows) Map(copy.text() -> Option.empty[String])
    else {
      val secret = copy.readText()
      copy.write("")
      Map(port.toString -> Some(secret))
    }
  }

  /** Read the settings of a stateful function, and return its state server. */
  private def stateServer(copy: HeaderCopy, layout: StreamLayout): Services = {
    settings(copy): Unit
    if (layout.hasJsonTask) settings(copy).get(StateServer).map(_ -> Option.empty[String]).toMap
    else Map(service(copy) -> Option.empty[String])
  }

  private def rddCommand(copy: HeaderCopy, layout: StreamLayout): Array[Byte] = {
    if (layout.hasJsonTask) {
      settings(copy): Unit
      settings(copy): Unit
    }
    copy.block()
  }

  private def settings(copy: HeaderCopy): Map[String, String] =
    (0 until copy.count()).map(_ => copy.text() -> copy.text()).toMap

  /** Return the names of the files on Python's import path. Copy the directory that precedes the
    * names.
    */
  private def files(copy: HeaderCopy): Seq[String] = {
    copy.text(): Unit
    (0 until copy.count()).map(_ => copy.text())
  }

  private def broadcasts(copy: HeaderCopy): BroadcastChanges = {
    val isEncrypted = copy.readBoolean()
    val count = copy.readCount()
    val decryption = if (isEncrypted) Some(decryptionServer(copy)) else None
    val changes = (0 until count).map { _ =>
      val id = copy.readLong()
      id -> (if (id < 0 || isEncrypted) None else Some(copy.readText()))
    }
    copy.write(false)
    copy.write(0)
    val (removed, added) = changes.partition { case (id, _) => id < 0 }
    BroadcastChanges(added.toMap, removed.map { case (id, _) => -id - 1 }.toSet, decryption)
  }

  private def decryptionServer(copy: HeaderCopy): (String, Option[String]) = {
    val port = copy.readInt()
    if (port == PathFollows) copy.readText() -> None else port.toString -> Some(copy.readText())
  }
}
