// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.IOException
import java.net.InetSocketAddress
import java.nio.ByteBuffer
import java.nio.channels.{ServerSocketChannel, SocketChannel}

import org.scalatest.funsuite.AnyFunSuite

class ServiceConnectionSuite extends AnyFunSuite {

  private val success = 0

  private def withService(patienceMilliseconds: Long)(
      test: (ServiceConnection, SocketChannel) => Unit
  ): Unit = {
    val listening = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0))
    val channel = SocketChannel.open(listening.getLocalAddress)
    val service = listening.accept()
    val connection =
      new ServiceConnection(new LoopbackConnection(channel), patienceMilliseconds)
    try test(connection, service)
    finally {
      connection.close()
      service.close()
      listening.close()
    }
  }

  private def ints(numbers: Int*): ByteBuffer = {
    val bytes = ByteBuffer.allocate(4 * numbers.size)
    numbers.foreach(bytes.putInt)
    bytes.flip()
  }

  /** Requests to a state server, each of four bytes. */
  private def requests(count: Int): ByteBuffer =
    ints((1 to count).flatMap(number => Seq(0, 4, number)): _*)

  private def answerSlowly(service: SocketChannel, count: Int): Thread = {
    val thread = new Thread(() =>
      (1 to count).foreach { _ =>
        service.write(ints(success)): Unit
        Thread.sleep(20)
      }
    )
    thread.start()
    thread
  }

  test("the answers to requests in one piece are read together") {
    withService(patienceMilliseconds = 60000) { (connection, service) =>
      connection.write(requests(3))
      val answering = answerSlowly(service, 3)
      assert(connection.read(ByteBuffer.allocate(100)) == 12)
      connection.write(requests(1))
      service.write(ints(success)): Unit
      assert(connection.read(ByteBuffer.allocate(100)) == 4)
      answering.join()
    }
  }

  test("a read returns what fits") {
    withService(patienceMilliseconds = 60000) { (connection, service) =>
      connection.write(requests(3))
      service.write(ints(success, success, success)): Unit
      assert(connection.read(ByteBuffer.allocate(8)) == 8)
      assert(connection.read(ByteBuffer.allocate(8)) == 4)
    }
  }

  test("answers of a server that has failed, or hung up, do not wait for the others") {
    withService(patienceMilliseconds = 10) { (connection, service) =>
      connection.write(requests(3))
      service.write(ints(success)): Unit
      assert(connection.read(ByteBuffer.allocate(100)) == 4)
    }
    withService(patienceMilliseconds = 60000) { (connection, service) =>
      connection.write(requests(3))
      service.write(ints(success)): Unit
      service.shutdownOutput(): Unit
      assert(connection.read(ByteBuffer.allocate(100)) == 4)
      assert(connection.read(ByteBuffer.allocate(100)) == -1)
    }
    withService(patienceMilliseconds = 60000) { (connection, service) =>
      connection.write(requests(3))
      service.write(ints(success)): Unit
      // The requests are unread, so this resets the connection.
      service.close()
      assert(connection.read(ByteBuffer.allocate(100)) == 4)
      intercept[IOException](connection.read(ByteBuffer.allocate(100)))
    }
  }

  test("a piece of anything else has no requests") {
    assert(ServiceConnection.requestsIn(requests(3)) == 3)
    val others = Seq(
      ints(),
      ints(0),
      ints(0, 5, 1),
      ints(0, -1, 1),
      ints(1, 4, 1),
      ints(-1, 4, 1),
      ints(0, 4, 1, 0),
      ints(0, Int.MaxValue, 1)
    )
    others.foreach(piece => assert(ServiceConnection.requestsIn(piece) == 0))
  }
}
