// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.updraft.proto.v1.Delivery;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.Receipt;
import io.updraft.proto.v1.WriteCommand;
import io.updraft.proto.v1.WriteReplyMetadata;
import io.updraft.proto.v1.WriteRequestMetadata;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class FileExchangeTest {
  private static final byte[] NOTHING = {};
  private static final byte[] PART = {1, 2, 3};

  private static FileExchange open(TestPool writer, BufferAllocator allocator, PartSink sink) {
    return FileExchange.open(
        ClientOptions.of(Peer.WRITER, writer.endpoint()),
        WriteCommand.newBuilder().setDelivery(Delivery.DELIVERY_RETURN).build(),
        Batches.SCHEMA,
        allocator,
        sink);
  }

  private static void reply(PoolCall call, WriteReplyMetadata.Builder metadata, byte[] part) {
    call.sendBytes(new FlightData(NOTHING, NOTHING, metadata.build().toByteArray(), part).encode());
  }

  @Test
  void a_sink_that_fails_with_an_error_fails_the_file() {
    TestPool.Behaviour returning =
        call -> {
          call.receive();
          while (!WriteRequestMetadata.parseFrom(call.receiveEarly().appMetadata()).hasFinish()) {
            // Skip keepalives.
          }
          reply(call, WriteReplyMetadata.newBuilder().setOffset(0), PART);
          Receipt receipt = Receipt.newBuilder().setFileBytes(PART.length).build();
          reply(call, WriteReplyMetadata.newBuilder().setReceipt(receipt), NOTHING);
          call.awaitCancelled();
        };
    PartSink unlinked =
        part -> {
          throw new NoClassDefFoundError("a file system's");
        };
    try (TestPool writer = TestPool.of(returning);
        BufferAllocator allocator = new RootAllocator();
        FileExchange file = open(writer, allocator, unlinked)) {
      ExchangeException failure = assertThrows(ExchangeException.class, file::finish);
      assertEquals(ErrorKind.ERROR_KIND_SINK, failure.kind());
      assertInstanceOf(NoClassDefFoundError.class, failure.getCause());
    }
  }

  private static BatchSlicer.Slice whole(RequestBatch batch) {
    return new BatchSlicer.Slice(batch, 0, batch.bodyBytes());
  }

  @Test
  void a_batch_that_cannot_be_sent_is_released() {
    try (TestPool writer = TestPool.of(PoolCall::awaitCancelled);
        BufferAllocator allocator = new RootAllocator();
        FileExchange file = open(writer, allocator, part -> {})) {
      RequestBatch batch = new RequestBatch(Batches.counting(allocator, 0, 10), BatchGroups.NONE);
      CallCore.Step<WriteRequestMetadata> unencodable =
          new CallCore.Step<>(null, whole(batch), false);
      assertThrows(NullPointerException.class, () -> file.send(unencodable));
      assertEquals(0, allocator.getAllocatedMemory());
    }
  }
}
