// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{DataInputStream, DataOutputStream, OutputStream}
import java.net.{InetAddress, InetSocketAddress, ServerSocket, Socket}
import java.nio.channels.ServerSocketChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.security.MessageDigest

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.{SparkConf, SparkContext}
import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.spark.config.UpdraftConf

/** Tests of the whole way from Spark's runner to a pool. The test plays both Spark's runner and the
  * pool.
  */
class WorkerTunnelSuite extends AnyFunSuite with BeforeAndAfterAll {
  private val taskModule = "pyspark.worker"
  private val planner = "pyspark.sql.worker.analyze_udtf"
  private val stateModule = "pyspark.sql.streaming.transform_with_state_driver_worker"

  /** Mark of an exception in the stream of PySpark's worker. */
  private val exceptionThrown = -2

  private val hangMilliseconds = PoolDouble.HangSeconds.toInt * 1000
  private val loopback = InetAddress.getByName("127.0.0.1")
  private val pool = new PoolDouble
  private var context: SparkContext = _

  override def beforeAll(): Unit = {
    val conf = new SparkConf().setMaster("local[1]").setAppName("tunnels")
      .set("spark.ui.enabled", "false")
      .set("spark.driver.host", "127.0.0.1")
      .set("spark.driver.bindAddress", "127.0.0.1")
      .set(UpdraftConf.endpoint.key, pool.endpoint)
    context = new SparkContext(conf)
    DistributedFiles.askBy(_ => Array.empty)
  }

  override def afterAll(): Unit = {
    context.stop()
    pool.close()
  }

  /** Tunnel of one worker, with the connection that Spark's runner would use. */
  private final class Worker(module: String, version: String) extends AutoCloseable {
    private val listener = ServerSocketChannel.open().bind(new InetSocketAddress(loopback, 0))

    private val runner = new Socket(loopback, listener.socket().getLocalPort)
    runner.setSoTimeout(hangMilliseconds)

    private val tunnel = new WorkerTunnel(
      new LoopbackConnection(listener.accept()),
      1,
      LaunchedProcess(1, Seq("-m", "pyspark.daemon", module), Map.empty),
      new LogLines(OutputStream.nullOutputStream()),
      StreamLayout.of(version).get
    )

    private val thread = DaemonThread.start("tunnel")(tunnel.run())
    private val out = new DataOutputStream(runner.getOutputStream)
    private val in = new DataInputStream(runner.getInputStream)

    def kill(): Unit = tunnel.kill()

    def int(value: Int): Worker = { out.writeInt(value); this }
    def long(value: Long): Worker = { out.writeLong(value); this }
    def boolean(value: Boolean): Worker = { out.writeBoolean(value); this }
    def text(value: String): Worker = {
      int(value.getBytes(UTF_8).length)
      out.write(value.getBytes(UTF_8))
      this
    }

    /** Close the runner's side of the connection for writing. */
    def hangUp(): Unit = runner.shutdownOutput()

    /** Return the exception that the worker reports. */
    def exception(): String = {
      assert(in.readInt() == exceptionThrown)
      new String(in.readNBytes(in.readInt()), UTF_8)
    }

    def isAtEnd: Boolean = in.read() == -1

    /** Wait until the tunnel does nothing but wait for bytes from Spark's runner. */
    def waitForReader(): Unit = {
      val deadline = System.nanoTime() + hangMilliseconds * 1000000L
      def waits = thread.getStackTrace.exists(frame =>
        frame.getMethodName == "select" && frame.getClassName.startsWith("sun.nio.ch.Selector")
      )
      while (!waits && System.nanoTime() < deadline) Thread.sleep(1)
      assert(waits)
    }

    /** Wait for the end of the tunnel. */
    def hasEnded: Boolean = {
      thread.join(hangMilliseconds.toLong)
      !thread.isAlive
    }

    override def close(): Unit = {
      runner.close()
      kill()
      listener.close()
    }
  }

  private def withWorker(module: String, version: String = "4.3.0")(test: Worker => Unit): Unit = {
    val worker = new Worker(module, version)
    try test(worker)
    finally worker.close()
  }

  /** Write the start of a planner's stream, with a broadcast variable. */
  private def announce(worker: Worker, path: String): Unit =
    worker.text("3.11").text("/files").int(0).boolean(false).int(1).long(5).text(path): Unit

  test("Spark can kill a worker while its broadcast variables travel to the pool") {
    val value = Array.fill[Byte](32 << 20)(1)
    val file = Files.write(SparkInternals.temporaryFile("broadcast", "").toPath, value)
    try
      withWorker(planner) { worker =>
        announce(worker, file.toString)
        val call = pool.next()
        assert(call.next().nonEmpty, "the opening")
        call.ask(ByteString.copyFrom(MessageDigest.getInstance("SHA-256").digest(value)))
        assert(call.next().length > 1024, "a part of the value")
        // The pool reads no more messages, so the upload waits.
        worker.kill()
        assert(worker.hasEnded)
        assert(call.isCancelled)
      }
    finally Files.delete(file)
  }

  test("an answer of a service that cannot be sent ends the exchange with an error") {
    val service = new ServerSocket(0, 1, loopback)
    try
      withWorker(stateModule) { worker =>
        worker.text("3.11").text("a function").int(service.getLocalPort)
        val call = pool.next()
        assert(call.next().nonEmpty, "the opening")
        call.begin()
        assert(call.next().nonEmpty, "the port of the service")
        call.write(1, service.getLocalPort.toString.getBytes(UTF_8))
        val connection = service.accept()
        worker.waitForReader()
        // An answer needs memory for its batch.
        SparkInternals.allocator.setLimit(1)
        try {
          connection.getOutputStream.write(1)
          assert(worker.exception().startsWith("The worker on the pool failed: Unable to allocate"))
          assert(worker.isAtEnd)
          assert(call.isCancelled)
        } finally SparkInternals.allocator.setLimit(Long.MaxValue)
        connection.close()
        worker.hangUp()
        assert(worker.hasEnded)
        assert(SparkInternals.allocator.getAllocatedMemory == 0)
      }
    finally service.close()
  }

  test("a stream that is not PySpark's is an error that says what to do") {
    withWorker(taskModule) { worker =>
      // These bytes are the start of an HTTP request.
      worker.int(1195725856)
      assert(worker.exception() ==
        "The worker on the pool failed: the stream of Spark's runner does not have the form of " +
        "this Spark version (it begins with 1195725856, not with -8): use the connector's jar for this version of Spark")
      assert(worker.isAtEnd)
    }
    withWorker(taskModule, "4.2.0") { worker =>
      worker.int(0).int(-5)
      assert(worker.exception().contains("(it has the count -5): use the connector's jar"))
    }
    withWorker(taskModule) { worker =>
      val task = "no task"
      worker.int(-8).int(4 + 4 + 4 + 4 + task.length).int(0).text("3.11").text(task)
      assert(worker.exception().contains("its task is not JSON"))
    }
  }

  test("an unknown worker module is an error that names the setting") {
    withWorker("my.worker") { worker =>
      val told = worker.int(0).exception()
      assert(told.contains("does not run the worker module my.worker"))
      assert(told.endsWith("without spark.python.worker.module"))
      assert(worker.isAtEnd)
    }
  }

  test("a stream that ends inside its header ends the worker, which asks the pool for nothing") {
    withWorker(taskModule) { worker =>
      worker.int(-8).int(1000).int(0)
      worker.hangUp()
      assert(worker.hasEnded)
      assert(worker.isAtEnd)
    }
  }

  test("a broadcast variable that is in no directory of Spark is not sent") {
    withWorker(planner) { worker =>
      announce(worker, "/etc/hostname")
      assert(
        worker.exception().contains("/etc/hostname, which is outside Spark's local directories")
      )
    }
  }
}
