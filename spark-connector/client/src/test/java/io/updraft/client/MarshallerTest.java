// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.CodedInputStream;
import io.grpc.KnownLength;
import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.ReplyMetadata;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Random;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

final class MarshallerTest {
  private static final int FUZZED_MESSAGES = 20_000;

  private final RootAllocator root = new RootAllocator();

  /** Fail the test if anything is still allocated. */
  @AfterEach
  void closeAllocator() {
    root.close();
  }

  private static OutgoingMessage message(RequestBatch batch, long sequence, WireAllocator wire) {
    BatchSlicer.Slice slice = new BatchSlicer.Slice(batch, 0, batch.bodyBytes());
    var step = new CallCore.Step<>(batch.groups().metadata(sequence), slice, false);
    return OutgoingMessage.of(step, wire);
  }

  private static byte[] written(OutgoingMessage message) throws IOException {
    try (InputStream stream = FlightMethod.DO_EXCHANGE.streamRequest(message)) {
      return stream.readAllBytes();
    }
  }

  /** Stream of known length, as gRPC delivers it, but without gRPC's buffers. */
  private static final class Received extends ByteArrayInputStream implements KnownLength {
    Received(byte[] bytes) {
      super(bytes);
    }
  }

  private IncomingMessage read(byte[] bytes) throws MalformedReplyException {
    return FlightDataReader.read(new Received(bytes), root);
  }

  @Test
  void grpc_takes_our_buffers_without_a_copy() {
    assertTrue(ZeroCopyOutput.available());
  }

  @Test
  void the_first_message_holds_command_and_schema() throws Exception {
    byte[] schema =
        RequestBatch.bytes(MessageSerializer.serializeMetadata(Batches.SCHEMA, IpcOption.DEFAULT));
    OutgoingMessage message =
        OutgoingMessage.opening(ExchangeFixture.COMMAND.toByteString(), schema);
    byte[] bytes = written(message);
    assertEquals(message.sizeBytes(), bytes.length);
    FlightData parsed = FlightData.parse(bytes);
    assertArrayEquals(parsed.encode(), bytes);
    assertEquals(Batches.SCHEMA, IpcReader.schema(parsed.header()));
    CodedInputStream descriptor = CodedInputStream.newInstance(parsed.descriptor());
    assertEquals(1 << 3, descriptor.readTag());
    assertEquals(2, descriptor.readEnum());
    assertEquals(2 << 3 | 2, descriptor.readTag());
    assertEquals(ExchangeFixture.COMMAND, ExchangeCommand.parseFrom(descriptor.readByteArray()));
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 7, 1_000, 1_025, 200_000})
  void a_batch_is_written_as_protobuf_writes_it_and_read_back(int rows) throws Exception {
    WireAllocator wire = new WireAllocator(root);
    byte[] bytes;
    try (RequestBatch batch =
        new RequestBatch(Batches.counting(root, 42, rows), BatchGroups.NONE)) {
      OutgoingMessage message = message(batch, 3, wire);
      bytes = written(message);
      assertEquals(message.sizeBytes(), bytes.length);
      assertArrayEquals(bytes, written(message));
    }
    wire.close();
    FlightData parsed = FlightData.parse(bytes);
    assertEquals(3, parsed.request().getSequence());
    assertEquals(8L * rows, parsed.body().length);
    if (rows > 0) {
      assertArrayEquals(parsed.encode(), bytes);
      try (IncomingMessage incoming = read(bytes);
          ArrowRecordBatch batch = IpcReader.batch(incoming.header(), incoming.body())) {
        assertEquals(rows, batch.getLength());
        assertEquals(42, Batches.first(batch));
      }
    }
  }

  @Test
  void a_message_of_a_closed_batch_is_not_written() {
    WireAllocator wire = new WireAllocator(root);
    RequestBatch batch = new RequestBatch(Batches.counting(root, 0, 10_000), BatchGroups.NONE);
    batch.close();
    assertThrows(IOException.class, () -> written(message(batch, 1, wire)));
    wire.close();
  }

  @Test
  void unknown_fields_are_skipped() throws Exception {
    byte[] known = FlightData.reply(ReplyMetadata.newBuilder().setConsumed(5).build()).encode();
    byte[] unknown = {
      (byte) 0xa0, 0x06, 0x7f, (byte) 0xaa, 0x06, 2, 1, 1, (byte) 0xad, 6, 1, 2, 3, 4
    };
    byte[] both = new byte[known.length + unknown.length];
    System.arraycopy(unknown, 0, both, 0, unknown.length);
    System.arraycopy(known, 0, both, unknown.length, known.length);
    try (IncomingMessage message = read(both)) {
      assertEquals(5, ReplyMetadata.parseFrom(message.appMetadata()).getConsumed());
    }
  }

  @Test
  void a_length_beyond_the_message_is_refused_before_anything_is_allocated() {
    byte[] hostile = {(byte) 0xc2, 0x3e, (byte) 0xff, (byte) 0xff, (byte) 0xff, (byte) 0xff, 7, 0};
    MalformedReplyException error =
        assertThrows(MalformedReplyException.class, () -> read(hostile));
    assertTrue(error.getMessage().contains("2147483647"), error.getMessage());
    assertEquals(0, root.getPeakMemoryAllocation());
  }

  @Test
  void fuzzed_messages_are_read_or_refused_and_leave_nothing_behind() {
    Random random = new Random(20261121);
    byte[] sound =
        FlightData.reply(
                ReplyMetadata.newBuilder().setSequence(1).setConsumed(1).build(),
                Batches.header(16),
                new byte[128])
            .encode();
    int refused = 0;
    for (int i = 0; i < FUZZED_MESSAGES; i++) {
      refused += readFuzzed(mutated(sound, random)) ? 0 : 1;
    }
    assertTrue(refused > FUZZED_MESSAGES / 10 && refused < FUZZED_MESSAGES);
  }

  private boolean readFuzzed(byte[] bytes) {
    try (IncomingMessage message = read(bytes)) {
      ArrowBuf body = message.body();
      if (body != null) {
        IpcReader.batch(message.header(), body).close();
      }
      return true;
    } catch (MalformedReplyException e) {
      return false;
    }
  }

  private static byte[] mutated(byte[] sound, Random random) {
    byte[] bytes = sound.clone();
    for (int change = random.nextInt(4); change >= 0; change--) {
      bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
    }
    int length = random.nextInt(8) == 0 ? random.nextInt(bytes.length) : bytes.length;
    return java.util.Arrays.copyOf(bytes, length);
  }
}
