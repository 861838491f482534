// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{DataInputStream, DataOutputStream, IOException}
import java.net.{InetAddress, InetSocketAddress, Socket}
import java.nio.channels.{ServerSocketChannel, SocketChannel}

import scala.concurrent.duration._

import org.scalatest.funsuite.AnyFunSuite

class HandshakeSuite extends AnyFunSuite {

  /** Run `body` with a worker's channel, and the socket of the process that has connected to it. */
  private def connected(body: (SocketChannel, Socket) => Unit): Unit = {
    val listener = ServerSocketChannel.open()
    try {
      listener.bind(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0))
      val address = listener.getLocalAddress.asInstanceOf[InetSocketAddress]
      val other = new Socket(address.getAddress, address.getPort)
      val channel = listener.accept()
      try body(channel, other)
      finally {
        channel.close()
        other.close()
      }
    } finally listener.close()
  }

  test("a process that connects and says nothing is disconnected") {
    connected { (channel, other) =>
      assertThrows[IOException](Handshake.limited(channel, 50.millis)(_.check("secret")))
      assert(other.getInputStream.read() === -1)
    }
  }

  test("a channel stays open after its handshake, even past the limit") {
    connected { (channel, other) =>
      Handshake.limited(channel, 50.millis)(_.introduce(7))
      // The test waits until the limit has passed. Nothing must happen then.
      Thread.sleep(100)
      assert(channel.isOpen)
      assert(new DataInputStream(other.getInputStream).readInt() === 7)
    }
  }

  test("a process with another secret is refused and disconnected") {
    connected { (channel, other) =>
      val out = new DataOutputStream(other.getOutputStream)
      out.writeInt(5)
      out.writeBytes("wrong")
      val error =
        intercept[IOException](Handshake.limited(channel, 10.seconds)(_.check("secret")))
      assert(error.getMessage === "a process without Spark's secret has connected")
    }
  }
}
