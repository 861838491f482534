// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.Status;
import io.updraft.proto.v1.Admitted;
import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.Finish;
import io.updraft.proto.v1.ReplyMetadata;
import io.updraft.proto.v1.Report;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Call to a {@link TestPool}, seen from the pool. */
final class PoolCall {
  /** Raised to end a behavior whose client has left. */
  static final class Gone extends RuntimeException {
    private static final long serialVersionUID = 1L;
  }

  private static final byte[] END = {};

  private final ServerCall<byte[], byte[]> call;
  private final Metadata headers;
  private final LinkedBlockingQueue<byte[]> arrived = new LinkedBlockingQueue<>();
  private final CountDownLatch cancelled = new CountDownLatch(1);
  private volatile boolean gone;
  private boolean opened;
  private boolean admitted;
  private long batches;
  private long rows;

  PoolCall(ServerCall<byte[], byte[]> call, Metadata headers) {
    this.call = call;
    this.headers = headers;
    call.sendHeaders(new Metadata());
    call.request(1);
  }

  ServerCall.Listener<byte[]> listener() {
    return new ServerCall.Listener<>() {
      @Override
      public void onMessage(byte[] message) {
        arrived.add(message);
        call.request(1);
      }

      @Override
      public void onHalfClose() {
        arrived.add(END);
      }

      @Override
      public void onCancel() {
        gone = true;
        arrived.add(END);
        cancelled.countDown();
      }
    };
  }

  Metadata headers() {
    return headers;
  }

  /** Wait until the client has cancelled. Return false if it does not do so in time. */
  boolean awaitCancelled() throws InterruptedException {
    return cancelled.await(60, TimeUnit.SECONDS);
  }

  /**
   * Return the next message; null at the client's half-close. The second call admits the exchange.
   */
  FlightData receive() throws InterruptedException {
    if (opened) {
      admit();
    }
    return receiveEarly();
  }

  /** Return the next message without admitting the exchange. */
  FlightData receiveEarly() throws InterruptedException {
    opened = true;
    byte[] message = arrived.take();
    if (gone) {
      throw new Gone();
    }
    return message == END ? null : FlightData.parse(message);
  }

  /** Return whether no message arrives for a moment. */
  boolean isSilent() throws InterruptedException {
    return arrived.poll(200, TimeUnit.MILLISECONDS) == null;
  }

  void send(FlightData message) {
    sendBytes(message.encode());
  }

  void sendBytes(byte[] message) {
    if (gone) {
      throw new Gone();
    }
    call.sendMessage(message);
  }

  /** Announce once that the exchange has its worker. */
  void admit() {
    if (!admitted) {
      admitted = true;
      Admitted event = Admitted.getDefaultInstance();
      send(FlightData.reply(ReplyMetadata.newBuilder().setAdmitted(event).build()));
    }
  }

  void sendSchema(byte[] header) {
    sendSchema(header, false);
  }

  void sendSchema(byte[] header, boolean hasAccumulators) {
    admit();
    ReplyMetadata metadata = ReplyMetadata.newBuilder().setHasAccumulators(hasAccumulators).build();
    send(FlightData.reply(metadata, header, END));
  }

  void sendCredit(long consumed) {
    send(FlightData.reply(ReplyMetadata.newBuilder().setConsumed(consumed).build()));
  }

  /** Reply with a batch, unchanged. */
  void sendBatch(long sequence, long consumed, FlightData batch, int batchRows) {
    batches++;
    rows += batchRows;
    ReplyMetadata metadata =
        ReplyMetadata.newBuilder().setSequence(sequence).setConsumed(consumed).build();
    send(FlightData.reply(metadata, batch.header(), batch.body()));
  }

  /** Finish with the right counts. */
  void finish() {
    Finish finish =
        Finish.newBuilder()
            .setBatches(batches)
            .setRows(rows)
            .setReport(Report.newBuilder().setTotalMilliseconds(7))
            .build();
    send(FlightData.reply(ReplyMetadata.newBuilder().setFinish(finish).build()));
    close(Status.OK, new Metadata());
  }

  /** Fail the call as a pool does: in-band, then with the status. */
  void fail(ErrorKind kind, String message, long sequence) {
    Error error =
        Error.newBuilder().setKind(kind).setMessage(message).setSequence(sequence).build();
    send(FlightData.reply(ReplyMetadata.newBuilder().setError(error).build()));
    close(Status.fromCode(Failure.codeOf(kind)).withDescription(message), new Metadata());
  }

  void close(Status status, Metadata trailers) {
    try {
      call.close(status, trailers);
    } catch (IllegalStateException e) {
      // The call is already closed or cancelled.
    }
  }
}
