// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{ByteArrayInputStream, DataInputStream, IOException}
import java.net.{InetAddress, ServerSocket}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.{ByteBuffer, ByteOrder}
import java.util.concurrent.LinkedBlockingQueue
import java.util.concurrent.TimeUnit.SECONDS

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.arrow.vector.ipc.message.{ArrowFieldNode, ArrowRecordBatch}
import org.apache.spark.sql.updraft.SparkInternals
import org.scalatest.funsuite.AnyFunSuite

/** Tests of a worker's connections to services of this process, and of the processes that represent
  * workers.
  */
class WorkerRulesSuite extends AnyFunSuite {

  private val process = LaunchedProcess(1, Seq("-m", "pyspark.daemon", "pyspark.worker"), Map.empty)

  private def bytes(text: String) = ByteBuffer.wrap(text.getBytes(UTF_8))

  private def withService(test: (ServerSocket, String) => Unit): Unit = {
    val service = new ServerSocket(0, 10, InetAddress.getByName("127.0.0.1"))
    try test(service, service.getLocalPort.toString)
    finally service.close()
  }

  private class Answers {
    val queue = new LinkedBlockingQueue[String]()
    def take(data: ByteBuffer): Boolean = queue.add(UTF_8.decode(data).toString)
    def next(): String = queue.poll(10, SECONDS)
  }

  private def connect(module: String, variables: (String, String)*) = {
    val arguments = Seq("-m", module)
    ConnectServer.of(LaunchedProcess(
      1,
      arguments,
      Map("PYTHON_WORKER_FACTORY_PORT" -> "1") ++ variables
    ))
  }

  private val listener = "pyspark.sql.connect.streaming.worker.listener_worker"
  private val url = "SPARK_CONNECT_LOCAL_URL"
  private val token = "SPARK_CONNECT_AUTHENTICATE_TOKEN"

  test("the Connect server's token travels beside its URL, which workers print") {
    val server = connect(listener, url -> "sc://localhost:15002/;user_id=a b;token=a secret")
    assert(server.map(_.port).contains(15002))
    assert(server.get.environment == Map(
      url -> "sc://localhost:15002/;user_id=a b",
      token -> "a secret"
    ))
    val other = connect(listener, url -> "sc://localhost:15002/", token -> "of the server")
    assert(other.get.token.contains("of the server"))
  }

  test("no other worker gets the Connect server") {
    val variables = Seq(url -> "sc://localhost:15002/;token=a", token -> "a")
    assert(connect("pyspark.sql.worker.analyze_udtf", variables: _*).isEmpty)
    assert(connect(listener).isEmpty)
  }

  test("a service that is away ends its connection alone") {
    withService { (service, port) =>
      service.close()
      val services = new HostServices(process, Map(port -> None))
      val answers = new Answers
      services.accept(1, bytes(port))(answers.take)
      assert(answers.next() == "")
      services.accept(1, bytes("late"))(answers.take)
      services.close()
    }
  }

  test("connections that a worker closes without taking their answers count until then") {
    withService { (service, port) =>
      val services = new HostServices(process, Map(port -> None))
      val room = new java.util.concurrent.Semaphore(0)
      def takeNothing(data: ByteBuffer): Boolean = { room.acquire(); true }
      val e = intercept[IOException] {
        (1 to 100).foreach { number =>
          services.accept(number, bytes(port))(takeNothing)
          val socket = service.accept()
          socket.getOutputStream.write(1)
          services.accept(number, bytes(""))(takeNothing)
        }
      }
      assert(e.getMessage.contains("keeps 32 connections"))
      room.release(1000)
      services.close()
    }
  }

  test("a worker calls the service that Spark announced") {
    withService { (service, port) =>
      val services = new HostServices(process, Map(port -> None))
      val answers = new Answers
      services.accept(1, bytes(port))(answers.take)
      val socket = service.accept()
      services.accept(1, bytes("call"))(answers.take)
      assert(new String(socket.getInputStream.readNBytes(4), UTF_8) == "call")
      socket.getOutputStream.write("answer".getBytes(UTF_8))
      assert(answers.next() == "answer")
      socket.close()
      assert(answers.next() == "")
      services.close()
    }
  }

  test("no other address is connected to") {
    withService { (service, port) =>
      val services = new HostServices(process, Map("1" -> None))
      val e = intercept[IOException](services.accept(1, bytes(port))(_ => true))
      assert(e.getMessage.contains("which Spark did not announce"))
      intercept[IOException](services.accept(1, bytes("/var/run/docker.sock"))(_ => true))
      services.close()
      service.setSoTimeout(200)
      intercept[java.net.SocketTimeoutException](service.accept())
    }
  }

  test("connections are numbered without gaps") {
    withService { (_, port) =>
      val services = new HostServices(process, Map(port -> None))
      intercept[IOException](services.accept(2, bytes(port))(_ => true))
      services.accept(1, bytes(port))(_ => true)
      intercept[IOException](services.accept(3, bytes(port))(_ => true))
      services.close()
    }
  }

  private def read(texts: String*) = LaunchedProcess.read(
    new DataInputStream(new ByteArrayInputStream(texts.map(_ + "\u0000").mkString.getBytes(UTF_8))),
    "secret"
  )

  test("a process tells its arguments and its environment") {
    val launched = read("secret", "42", "2", "-m", "pyspark.worker", "A=1=2", "B=", "")
    assert(launched == LaunchedProcess(
      42,
      Seq("-m", "pyspark.worker"),
      Map("A" -> "1=2", "B" -> "")
    ))
  }

  test("a process without the secret is refused before it is read") {
    intercept[IOException](read("wrong!", "42"))
    intercept[IOException](read("a secret that is too long", "42"))
    intercept[IOException](read("secret", "no number"))
  }

  private def piece(size: Int) = {
    val buffer = SparkInternals.allocator.buffer(size.toLong)
    buffer.setBytes(0, Array.tabulate(size)(_.toByte))
    buffer.writerIndex(size.toLong)
  }

  /** Make a reply with these buffers, and check it. */
  private def pieces(
      rows: Int,
      nulls: Int,
      buffers: Array[Byte]*
  ): Seq[(Int, Option[String], Long)] = {
    val made = buffers.map { bytes =>
      val buffer = SparkInternals.allocator.buffer(bytes.length.toLong)
      buffer.setBytes(0, bytes)
      buffer.writerIndex(bytes.length.toLong)
    }
    val nodes = Seq(0, nulls, 0).map(new ArrowFieldNode(rows.toLong, _))
    val reply =
      try new ArrowRecordBatch(rows, nodes.asJava, made.asJava)
      finally made.foreach(_.close())
    Using.resource(reply)(StreamBatches.pieces(_).map { piece =>
      (piece.connection, piece.data.map(UTF_8.decode(_).toString), piece.readBytes)
    })
  }

  private def ints(values: Int*) = {
    val bytes = ByteBuffer.allocate(4 * values.size).order(ByteOrder.LITTLE_ENDIAN)
    values.foreach(bytes.putInt)
    bytes.array()
  }

  test("a reply that a function has written itself cannot name other memory") {
    val none = Array.empty[Byte]
    val text = "abcdef".getBytes(UTF_8)
    val (numbers, offsets, read) = (ints(0, 1), ints(0, 2, 6), ints(3, 0, 4, 0))
    assert(
      pieces(2, 0, none, numbers, none, offsets, text, none, read) ==
        Seq((0, Some("ab"), 3L), (1, Some("cdef"), 4L))
    )
    assert(
      pieces(2, 1, none, numbers, Array[Byte](2), offsets, text, none, read) ==
        Seq((0, None, 3L), (1, Some("cdef"), 4L))
    )
    assert(pieces(0, 0, none, none, none, none, none, none, none).isEmpty)
    Seq[() => Any](
      () => pieces(2, 0, none, numbers, none, offsets, text, none),
      () => pieces(2, 0, none, numbers, none, offsets, text, none, read, none),
      () => pieces(3, 0, none, numbers, none, offsets, text, none, read),
      () => pieces(Int.MaxValue, 0, none, numbers, none, offsets, text, none, read),
      () => pieces(-1, 0, none, numbers, none, offsets, text, none, read),
      () => pieces(2, 1, none, numbers, none, offsets, text, none, read),
      () => pieces(2, 0, none, numbers, none, ints(0, 2), text, none, read),
      () => pieces(2, 0, none, numbers, none, ints(0, 2, 7), text, none, read),
      () => pieces(2, 0, none, numbers, none, ints(0, 2, 1), text, none, read),
      () => pieces(2, 0, none, numbers, none, ints(-4, 2, 6), text, none, read),
      () => pieces(2, 0, none, numbers, none, ints(0, Int.MinValue, 6), text, none, read)
    ).foreach { made =>
      val e = intercept[IllegalStateException](made())
      assert(e.getMessage.startsWith("a reply of the worker exchange"))
    }
    assert(SparkInternals.allocator.getAllocatedMemory == 0)
  }

  test("a worker cannot report more, or less, than it can have read") {
    val unread = new UnreadBytes
    intercept[IllegalStateException](unread.readThrough(1))
    Using.resource(piece(10))(unread.add)
    unread.readThrough(4)
    intercept[IllegalStateException](unread.readThrough(3))
    intercept[IllegalStateException](unread.readThrough(11))
    unread.close()
    assert(SparkInternals.allocator.getAllocatedMemory == 0)
  }

  test("the runner's next task gets the bytes that the worker has not read") {
    val unread = new UnreadBytes
    Using.resource(piece(10))(unread.add)
    unread.markOutput()
    Using.resource(piece(5))(unread.add)
    unread.readThrough(8)
    assert(!unread.isReadThroughLastOutput)
    unread.readThrough(12)
    assert(unread.isReadThroughLastOutput)
    val rest = new Array[Byte](3)
    unread.rest.get(rest): Unit
    assert(rest.toSeq == Seq[Byte](2, 3, 4))
    unread.close()
    assert(SparkInternals.allocator.getAllocatedMemory == 0)
  }
}
