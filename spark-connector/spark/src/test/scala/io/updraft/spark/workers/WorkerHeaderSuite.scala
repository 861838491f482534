// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataOutputStream}
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.{SparkConf, SparkContext}
import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite

/** Tests of headers as each Spark version writes them, and of the parts that leave this host. */
class WorkerHeaderSuite extends AnyFunSuite with BeforeAndAfterAll {
  private var context: SparkContext = _

  // Spark's own setting says which local properties are secrets.
  override def beforeAll(): Unit =
    context = new SparkContext(new SparkConf().setMaster("local[1]").setAppName("headers")
      .set("spark.ui.enabled", "false"))

  override def afterAll(): Unit = context.stop()

  private final class Written {
    private val bytes = new ByteArrayOutputStream
    val out = new DataOutputStream(bytes)

    def text(value: String): Written = {
      out.writeInt(value.getBytes(UTF_8).length)
      out.write(value.getBytes(UTF_8))
      this
    }

    def int(value: Int): Written = { out.writeInt(value); this }
    def long(value: Long): Written = { out.writeLong(value); this }
    def boolean(value: Boolean): Written = { out.writeBoolean(value); this }
    def settings(values: (String, String)*): Written =
      values.foldLeft(int(values.size)) { case (all, (key, value)) => all.text(key).text(value) }

    def toBytes: Array[Byte] = bytes.toByteArray
  }

  private val properties = Seq("mine" -> "1", "my.password" -> "s", "spark.secret.setting" -> "2")

  private def numbers(written: Written): Written = written
    .int(3).int(0).int(1).long(77L).int(2)
    .int(1).text("gpu").text("gpu").int(1).text("0")
    .settings(properties: _*)

  private def files(written: Written): Written = written
    .text("/executor/files").int(1).text("lib.zip")
    .boolean(
      false
    ).int(3).long(5).text("/local/broadcast5").long(-8).long(9).text("/local/broadcast9")

  private def json(isBarrier: Boolean): String = {
    val (port, secret) = if (isBarrier) ("4711", "\"hidden\"") else ("null", "null")
    val stated = properties.map { case (key, value) => s""""$key":"$value"""" }.mkString(",")
    s"""{"isBarrier":$isBarrier,"connInfo":$port,"secret":$secret,"stageId":3,"partitionId":0,""" +
      s""""attemptNumber":1,"taskAttemptId":77,"cpus":2,"cpuAmount":"2","resources":{},""" +
      s""""localProperties":{$stated}}"""
  }

  private def read(version: String, bytes: Array[Byte], module: String = "pyspark.worker") =
    WorkerHeader.read(module, new ByteArrayInputStream(bytes), StreamLayout.of(version).get)

  private def checkTask(header: WorkerHeader): Unit = {
    assert(header.pythonVersion == "3.11")
    assert(header.task.contains(WorkerTask(3, 0, 1, 77L, 2, Map("mine" -> "1"))))
    assert(header.includes == Seq("lib.zip"))
    assert(header.broadcasts == BroadcastChanges(
      Map(5L -> Some("/local/broadcast5"), 9L -> Some("/local/broadcast9")),
      Set(7L),
      None
    ))
    val sent = new String(header.bytes, UTF_8)
    assert(
      !sent.contains("my.password") && !sent.contains("spark.secret") && !sent.contains("hidden")
    )
    assert(!sent.contains("/local/broadcast"))
  }

  private def start = new Written().int(0).text("3.11")

  test("4.0 writes the port of a barrier stage for every task") {
    val bytes = files(numbers(start.boolean(false).int(0).text(""))).int(205).toBytes
    val header = read("4.0.1", bytes)
    checkTask(header)
    assert(header.services.isEmpty)
  }

  test("the function of an RDD belongs to the header") {
    val json = start.text(this.json(isBarrier = false))
    val written = Seq(
      "4.0.1" -> files(numbers(start.boolean(false).int(0).text(""))).int(0),
      "4.1.4" -> files(numbers(start.boolean(false))).int(0),
      "4.2.0" -> files(json).int(0).settings("a" -> "b").settings()
    )
    for ((version, header) <- written) {
      val bytes = header.text("pickled").text("data").toBytes
      val found = read(version, bytes)
      checkTask(found)
      assert(found.command.map(new String(_, UTF_8)).contains("pickled"))
      assert(found.evalType.contains(0))
      assert(new String(found.bytes, UTF_8).endsWith("pickled"))
    }
    val ofSql = files(numbers(start.boolean(false))).int(205).text("more").toBytes
    assert(read("4.1.4", ofSql).command.isEmpty && read("4.1.4", ofSql).evalType.contains(205))
  }

  test("the secret of a barrier stage stays here") {
    for (version <- Seq("4.0.1", "4.1.4")) {
      val bytes =
        files(numbers(start.boolean(true).int(4711).text("hidden"))).int(0).text("f").toBytes
      val header = read(version, bytes)
      checkTask(header)
      assert(header.services == Map("4711" -> Some("hidden")))
    }
    val framed =
      files(start.text(json(isBarrier = true))).int(0).settings().settings().text("f").toBytes
    val header = read("4.2.0", framed)
    checkTask(header)
    assert(header.services == Map("4711" -> Some("hidden")))
  }

  test("4.1 may name a path in place of a port") {
    val bytes =
      files(numbers(start.boolean(true).int(-1).text("/run/barrier.sock"))).int(0).text("f").toBytes
    assert(read("4.1.4", bytes).services == Map("/run/barrier.sock" -> None))
  }

  test("the state server of transformWithState can be called") {
    val before42 =
      files(numbers(start.boolean(false))).int(211).settings("a" -> "b").int(815).toBytes
    assert(read("4.1.4", before42).services == Map("815" -> None))
    val since42 = files(start.text(json(isBarrier = false))).int(213)
      .settings("a" -> "b").settings("state_server_socket_port" -> "815").toBytes
    assert(read("4.2.0", since42).services == Map("815" -> None))
  }

  test("4.3 writes the length of the header in front of it") {
    val message = files(start.text(json(isBarrier = false))).int(205).text("the rest").toBytes
    val framed = new Written().int(-8).int(message.length)
    framed.out.write(message)
    val header = read("4.3.0", framed.toBytes)
    checkTask(header)
    val sent = new java.io.DataInputStream(new ByteArrayInputStream(header.bytes))
    assert(sent.readInt() == -8)
    assert(sent.readInt() == header.bytes.length - 8)
    assert(new String(header.bytes, UTF_8).endsWith("the rest"))
    assert(header.command.isEmpty)
    val ofRdd = files(start.text(json(isBarrier = false))).int(0).settings().settings()
      .text("pickled").toBytes
    val framedRdd = new Written().int(-8).int(ofRdd.length)
    framedRdd.out.write(ofRdd)
    assert(read("4.3.0", framedRdd.toBytes).command.map(new String(_, UTF_8)).contains("pickled"))
  }

  test("a frame that ends too early is not the end of the stream") {
    val short = new Written().int(-8).int(4).int(0).toBytes
    intercept[NotPySparkException](read("4.3.0", short))
  }

  private def planner = files(new Written().text("3.11"))
  private def check(header: WorkerHeader, bytes: Array[Byte], command: Option[String]): Unit = {
    assert(header.pythonVersion == "3.11" && header.task.isEmpty && header.services.isEmpty)
    assert(header.command.map(new String(_, UTF_8)) == command)
    assert(header.bytes.sameElements(bytes))
  }
  // These bytes belong to the rest of the task's stream.
  private def continued(written: Written) = written.text("more").toBytes

  test("the header of a planner ends with the broadcasts") {
    def sent = new Written().text("3.11").text("/executor/files").int(1).text("lib.zip")
      .boolean(false).int(0)
    for (
      module <- Seq(
        "analyze_udtf",
        "create_data_source",
        "plan_data_source_read",
        "write_into_data_source",
        "commit_data_source_write"
      )
    ) {
      val header = read("4.3.0", continued(planner), s"pyspark.sql.worker.$module")
      check(header, sent.toBytes, None)
      assert(header.includes == Seq("lib.zip") && header.broadcasts.added.keySet == Set(5L, 9L))
      assert(header.session.isEmpty)
    }
  }

  test("the header of a stream ends with the function") {
    val source = "pyspark.sql.streaming.python_streaming_source_runner"
    def written = new Written().text("3.11").text("/files").int(1).text("lib.zip").text("pickled")
    val header = read("4.3.0", continued(written), source)
    check(header, written.toBytes, Some("pickled"))
    assert(header.includes == Seq("lib.zip") && !header.hasLateService)
    val state = "pyspark.sql.streaming.transform_with_state_driver_worker"
    def stateful = new Written().text("3.11").text("pickled")
    val ofState = read("4.3.0", continued(stateful), state)
    check(ofState, stateful.toBytes, Some("pickled"))
    assert(ofState.hasLateService)
  }

  test("a function of a Spark Connect session follows the session's id") {
    val module = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"
    def written = new Written().text("3.11").text("a session").text("pickled")
    val header = read("4.3.0", continued(written), module)
    check(header, written.toBytes, Some("pickled"))
    assert(header.session.contains("a session"))
  }

  test("another stream is refused") {
    val e = intercept[NotPySparkException](read("4.3.0", new Written().int(1195725856).toBytes))
    assert(e.getMessage.contains("it begins with 1195725856"))
    intercept[NotPySparkException](read("4.2.0", new Written().int(0).int(-5).toBytes))
    intercept[java.io.EOFException](read("4.2.0", new Written().int(0).int(5).toBytes))
  }

  test("the server for encrypted broadcast variables, with its secret, stays here") {
    def bytes(write: Written => Written) =
      write(new Written().text("3.11").text("/files").int(0).boolean(true).int(2))
        .long(-8).long(5).toBytes
    def planner(bytes: Array[Byte]) = read("4.3.0", bytes, "pyspark.sql.worker.lookup_data_sources")

    val byPort = planner(bytes(_.int(4711).text("hidden")))
    val decryption = Some("4711" -> Some("hidden"))
    assert(byPort.broadcasts == BroadcastChanges(Map(5L -> None), Set(7L), decryption))
    assert(byPort.services.isEmpty)
    val byPath = planner(bytes(_.int(-1).text("/run/values.sock")))
    assert(byPath.broadcasts == byPort.broadcasts.copy(decryption =
      Some("/run/values.sock" -> None)
    ))
    val sent = new Written().text("3.11").text("/files").int(0).boolean(false).int(0).toBytes
    assert(byPort.bytes.sameElements(sent) && byPath.bytes.sameElements(sent))
  }

  test("Spark before 4.0 has no layout") {
    assert(StreamLayout.of("3.5.8").isEmpty)
  }
}
