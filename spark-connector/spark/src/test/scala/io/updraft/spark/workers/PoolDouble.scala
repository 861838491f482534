// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, InputStream}
import java.net.InetSocketAddress
import java.nio.ByteBuffer
import java.nio.channels.Channels
import java.util.concurrent.TimeUnit.SECONDS
import java.util.concurrent.{CountDownLatch, LinkedBlockingQueue}

import com.google.protobuf.{ByteString, CodedOutputStream}
import io.grpc.netty.NettyServerBuilder
import io.grpc.{Metadata, MethodDescriptor, ServerCall, ServerServiceDefinition}
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.{IpcOption, MessageSerializer}
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.client.Exchange
import io.updraft.proto.v1.{Admitted, ArtifactsWanted, ReplyMetadata}

/** Pool in this JVM. A test accepts the pool's calls and writes the replies. */
private[workers] final class PoolDouble extends AutoCloseable {
  private val calls = new LinkedBlockingQueue[PoolCall]()

  private val server = {
    val method = MethodDescriptor
      .newBuilder(PoolDouble.Bytes, PoolDouble.Bytes)
      .setType(MethodDescriptor.MethodType.BIDI_STREAMING)
      .setFullMethodName("arrow.flight.protocol.FlightService/DoExchange")
      .build()
    val service = ServerServiceDefinition
      .builder(MethodDescriptor.extractFullServiceName(method.getFullMethodName))
      .addMethod(
        method,
        (call: ServerCall[Array[Byte], Array[Byte]], _: Metadata) => {
          val taken = new PoolCall(call)
          calls.put(taken)
          taken.listener
        }
      )
      .build()
    NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0)).addService(service)
      .build().start()
  }

  def endpoint: String = s"grpc+tcp://127.0.0.1:${server.getPort}"

  /** Wait for the next call. */
  def next(): PoolCall = Option(calls.poll(PoolDouble.HangSeconds, SECONDS))
    .getOrElse(throw new AssertionError("the client has not called"))

  override def close(): Unit = {
    server.shutdownNow()
    server.awaitTermination(): Unit
  }
}

private[workers] object PoolDouble {

  /** Time after which a test that waits is considered to hang. */
  val HangSeconds = 60L

  private object Bytes extends MethodDescriptor.Marshaller[Array[Byte]] {
    override def stream(value: Array[Byte]): InputStream = new ByteArrayInputStream(value)
    override def parse(stream: InputStream): Array[Byte] = stream.readAllBytes()
  }
}

/** Call to a pool. The call requests a message from the client only when the test asks for one. */
private[workers] final class PoolCall(call: ServerCall[Array[Byte], Array[Byte]]) {
  private val messages = new LinkedBlockingQueue[Array[Byte]]()
  private val cancelled = new CountDownLatch(1)
  private var replies = 0L
  call.sendHeaders(new Metadata)

  val listener: ServerCall.Listener[Array[Byte]] = new ServerCall.Listener[Array[Byte]] {
    override def onMessage(message: Array[Byte]): Unit = messages.put(message)
    override def onCancel(): Unit = cancelled.countDown()
  }

  /** Wait for the next message. */
  def next(): Array[Byte] = {
    call.request(1)
    Option(messages.poll(PoolDouble.HangSeconds, SECONDS))
      .getOrElse(throw new AssertionError("the client has not sent a message"))
  }

  /** Wait until the client has cancelled the call. Return false if the client does not. */
  def isCancelled: Boolean = cancelled.await(PoolDouble.HangSeconds, SECONDS)

  def ask(artifacts: ByteString*): Unit = {
    val wanted = ArtifactsWanted.newBuilder()
    artifacts.foreach(wanted.addSha256)
    send(ReplyMetadata.newBuilder().setArtifactsWanted(wanted))
  }

  /** Announce that the exchange has a worker, and the schema of its output. */
  def begin(): Unit = {
    send(ReplyMetadata.newBuilder().setAdmitted(Admitted.getDefaultInstance))
    send(ReplyMetadata.newBuilder(), Exchange.schemaHeader(StreamBatches.schema))
  }

  /** Send a piece of the worker's stream on a connection. */
  def write(connection: Int, bytes: Array[Byte]): Unit = {
    val piece = SparkInternals.allocator.buffer(bytes.length.toLong)
    piece.setBytes(0, bytes)
    piece.writerIndex(bytes.length.toLong): Unit
    val batch = StreamBatches.of(connection, piece, SparkInternals.allocator)
    try {
      val header = MessageSerializer.serializeMetadata(batch, IpcOption.DEFAULT)
      val whole = new ByteArrayOutputStream
      MessageSerializer.serialize(new WriteChannel(Channels.newChannel(whole)), batch): Unit
      replies += 1
      send(
        ReplyMetadata.newBuilder().setSequence(replies),
        bytesOf(header),
        whole.toByteArray.takeRight(batch.computeBodyLength().toInt)
      )
    } finally batch.close()
  }

  private def bytesOf(buffer: ByteBuffer): Array[Byte] = {
    val bytes = new Array[Byte](buffer.remaining())
    buffer.duplicate().get(bytes): Unit
    bytes
  }

  /** Send a message of Arrow Flight. */
  private def send(
      metadata: ReplyMetadata.Builder,
      header: Array[Byte] = Array.empty,
      body: Array[Byte] = Array.empty
  ): Unit = {
    val bytes = new ByteArrayOutputStream
    val out = CodedOutputStream.newInstance(bytes)
    val fields = Seq(2 -> header, 3 -> metadata.build().toByteArray, 1000 -> body)
    fields.foreach { case (number, field) =>
      if (field.nonEmpty) out.writeByteArray(number, field)
    }
    out.flush()
    call.sendMessage(bytes.toByteArray)
  }
}
