// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.ReplyMetadata;

/** What test pools do. */
final class Behaviours {
  private static final Metadata.Key<String> RETRY_AFTER =
      Metadata.Key.of("retry-after-ms", Metadata.ASCII_STRING_MARSHALLER);

  private Behaviours() {}

  /** Sends every batch back. */
  static void echo(PoolCall call) throws InterruptedException {
    echo(call, call.receive());
  }

  /** The same after the opening. */
  static void echo(PoolCall call, FlightData opening) throws InterruptedException {
    call.sendSchema(opening.header());
    long sequence = 0;
    for (FlightData next = call.receive(); next != null; next = call.receive()) {
      if (next.request().hasFinish()) {
        call.finish();
        return;
      }
      sequence++;
      call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
    }
  }

  /** Sends every batch back, each part of a large one by itself; says how many such there were. */
  static int echoParts(PoolCall call) throws InterruptedException {
    call.sendSchema(call.receive().header());
    int parts = 0;
    long sequence = 0;
    for (FlightData next = call.receive(); !next.request().hasFinish(); next = call.receive()) {
      if (next.request().hasPart()) {
        parts++;
        ReplyMetadata metadata =
            ReplyMetadata.newBuilder().setPart(next.request().getPart()).build();
        call.send(FlightData.reply(metadata, next.header(), next.body()));
      } else {
        sequence++;
        call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
      }
    }
    call.finish();
    return parts;
  }

  /** Answers so many batches, then takes one more and loses its worker. */
  static TestPool.Behaviour workerDiesAfter(int answered) {
    return call -> {
      echoSome(call, answered);
      call.receive();
      call.fail(ErrorKind.ERROR_KIND_WORKER, "the worker was killed by SIGKILL", answered + 1);
    };
  }

  /** Answers so many batches and no more. */
  static void echoSome(PoolCall call, int answered) throws InterruptedException {
    echoSome(call, call.receive(), answered);
  }

  /** The same after the opening. */
  static void echoSome(PoolCall call, FlightData opening, int answered)
      throws InterruptedException {
    call.sendSchema(opening.header());
    for (int sequence = 1; sequence <= answered; sequence++) {
      FlightData batch = call.receive();
      call.sendBatch(sequence, sequence, batch, Batches.rows(batch.header()));
    }
  }

  /** Answers so many batches, takes one more and comes to an end. */
  static TestPool.Behaviour afterAnswers(int answered, TestPool.Behaviour end) {
    return call -> {
      echoSome(call, answered);
      call.receive();
      end.run(call);
    };
  }

  /** Comes to an end when it has read the command. */
  static TestPool.Behaviour afterTheOpening(TestPool.Behaviour end) {
    return call -> {
      call.receive();
      end.run(call);
    };
  }

  /** Comes to an end when the function has taken the first batch. */
  static TestPool.Behaviour atWork(TestPool.Behaviour end) {
    return call -> {
      call.receive();
      call.receive();
      call.sendCredit(1);
      end.run(call);
    };
  }

  /** An end: the worker is lost and the pool says so. */
  static void workerDies(PoolCall call) {
    call.fail(ErrorKind.ERROR_KIND_WORKER, "the worker was killed by SIGKILL", 0);
  }

  /** An end: the pool drains. */
  static void drains(PoolCall call) {
    call.fail(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, "the pool is draining", 0);
  }

  /** An end: the stream stops without a finish, as where a pod is gone. */
  static void vanishes(PoolCall call) {
    call.close(Status.OK, new Metadata());
  }

  /** A full pool, which wants to be asked again after so many milliseconds. */
  static TestPool.Behaviour full(String retryAfter) {
    return call -> {
      Metadata trailers = new Metadata();
      trailers.put(RETRY_AFTER, retryAfter);
      call.close(Status.RESOURCE_EXHAUSTED.withDescription("the queue is full"), trailers);
    };
  }
}
