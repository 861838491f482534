// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.updraft.proto.v1.SegmentRange;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.concurrent.atomic.LongAdder;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

final class SegmentTest {
  private static final String NAME = "updraft-segment-0123456789abcdef0123456789abcdef";
  private static final int RING = 1 << 20;
  private static final int CONTROL = 4096;
  private static final int ROWS = RING / 8 / 4;
  private static final int BODY = 8 * ROWS;

  @TempDir Path directory;

  private final RootAllocator root = new RootAllocator();
  private final LongAdder passed = new LongAdder();
  private Path path;
  private Segment segment;

  @BeforeEach
  void open() throws IOException {
    path = directory.resolve(NAME);
    Files.write(path, new byte[CONTROL + 2 * RING]);
    segment = Segment.open(directory.toString(), offer(NAME, RING), passed);
  }

  /** Fail the test if anything is still allocated. */
  @AfterEach
  void close() {
    segment.close();
    segment.close();
    root.close();
  }

  private static io.updraft.proto.v1.Segment offer(String name, long ringBytes) {
    return io.updraft.proto.v1.Segment.newBuilder().setName(name).setRingBytes(ringBytes).build();
  }

  private SegmentRange place(long sequence, long first, int rows) {
    try (RequestBatch batch =
        new RequestBatch(Batches.counting(root, first, rows), BatchGroups.NONE)) {
      return segment.place(batch, sequence);
    }
  }

  private ByteBuffer file() throws IOException {
    return ByteBuffer.wrap(Files.readAllBytes(path)).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static SegmentRange range(long position, long sizeBytes) {
    return SegmentRange.newBuilder().setPosition(position).setSizeBytes(sizeBytes).build();
  }

  @Test
  void the_pool_sees_that_the_file_is_mapped() throws IOException {
    assertEquals(1, file().getLong(8));
  }

  @Test
  void requests_lie_one_after_the_other_until_the_ring_is_full() throws IOException {
    for (int i = 0; i < 4; i++) {
      assertEquals(range((long) i * BODY, BODY), place(i + 1, i * 100L, ROWS));
      assertEquals(i * 100L, file().getLong(CONTROL + i * BODY));
    }
    assertNull(place(5, 500, ROWS));
    segment.consumed(1);
    assertEquals(range(RING, BODY), place(5, 500, ROWS));
    assertEquals(500, file().getLong(CONTROL));
    assertNull(place(6, 600, ROWS));
  }

  @Test
  void a_request_does_not_reach_beyond_the_end_of_the_ring() {
    assertEquals(range(0, 3L * BODY), place(1, 0, 3 * ROWS));
    assertNull(place(2, 0, 2 * ROWS));
    segment.consumed(1);
    assertEquals(range(RING, 2L * BODY), place(2, 0, 2 * ROWS));
  }

  @ParameterizedTest
  @ValueSource(ints = {0, Segment.LEAST_BODY_BYTES / 8 - 1, RING / 8 + 1})
  void small_and_huge_requests_travel_in_their_messages(int rows) {
    assertNull(place(1, 0, rows));
  }

  @Test
  void a_closed_batch_and_a_closed_segment_take_no_place() {
    RequestBatch batch = new RequestBatch(Batches.counting(root, 0, ROWS), BatchGroups.NONE);
    batch.close();
    assertNull(segment.place(batch, 1));
    segment.close();
    assertNull(place(1, 0, ROWS));
  }

  @Test
  void a_reply_is_copied_and_its_place_is_free() throws IOException, MalformedReplyException {
    ByteBuffer value = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(0, 42);
    try (FileChannel file = FileChannel.open(path, StandardOpenOption.WRITE)) {
      file.write(value, CONTROL + RING + 16);
    }
    try (ArrowBuf body = segment.take(range(3L * RING + 16, 8), root)) {
      assertEquals(8, body.readableBytes());
      assertEquals(42, body.getLong(0));
    }
    assertEquals(3L * RING + 24, file().getLong(0));
  }

  @ParameterizedTest
  @CsvSource({
    "0, 0",
    "0, -1",
    "-1, 8",
    "0, 1048577",
    "1048575, 2",
    "9223372036854775807, 1",
    "8, -8"
  })
  void a_reply_outside_of_the_ring_is_refused(long position, long sizeBytes) {
    assertThrows(
        MalformedReplyException.class, () -> segment.take(range(position, sizeBytes), root));
  }

  @Test
  void an_empty_ring_takes_a_body_that_does_not_fit_behind_the_last_one() {
    for (int i = 0; i < 9; i++) {
      assertEquals((long) i * RING, place(i + 1, 0, 3 * ROWS).getPosition());
      segment.consumed(i + 1);
    }
  }

  @Test
  void nothing_is_taken_after_the_end() {
    segment.close();
    assertThrows(MalformedReplyException.class, () -> segment.take(range(0, 8), root));
  }

  @ParameterizedTest
  @ValueSource(longs = {0, -1, RING - 1, 1L << 40})
  void a_file_of_another_size_is_no_segment(long ringBytes) {
    assertThrows(
        IOException.class,
        () -> Segment.open(directory.toString(), offer(NAME, ringBytes), passed));
  }

  @Test
  void a_pool_cannot_have_the_client_write_to_another_file() throws IOException {
    Path other = Files.write(directory.resolve("other"), new byte[CONTROL + 2 * RING]);
    String link = NAME.replace('0', '1');
    Files.createSymbolicLink(directory.resolve(link), other);
    for (String name : List.of("other", link, "../" + NAME, NAME + "/x", "")) {
      assertThrows(
          IOException.class,
          () -> Segment.open(directory.toString(), offer(name, RING), passed),
          name);
    }
    assertThrows(IOException.class, () -> Segment.open("", offer(NAME, RING), passed));
  }

  private Segment offered(String endpoint, Path in) {
    ReplyEvent.SegmentOffered offered =
        new ReplyEvent.SegmentOffered(in.toString(), offer(NAME, RING));
    return Segment.ofOffer(Endpoint.parse(endpoint), offered, passed);
  }

  @Test
  void a_pool_whose_segments_cannot_be_opened_is_not_asked_again() {
    Endpoint elsewhere = Endpoint.parse("grpc+unix:///elsewhere/pool.sock");
    assertTrue(Segment.areUsable(elsewhere));
    assertNull(offered(elsewhere.toString(), directory.resolve("missing")));
    assertFalse(Segment.areUsable(elsewhere));
    assertTrue(Segment.areUsable(Endpoint.parse("grpc+unix:///here/pool.sock")));
  }

  @Test
  void a_port_is_trusted_only_with_this_users_own_directory() throws IOException {
    try (Segment ofSocket = offered("grpc+unix:///" + NAME, directory)) {
      assertNotNull(ofSocket);
    }
    assertNull(offered("grpc://127.0.0.1:1", directory));
    Path own = Path.of("/dev/shm/updraft-segments-" + NAME.substring(NAME.length() - 32));
    Files.createDirectory(own);
    try {
      Files.copy(path, own.resolve(NAME));
      try (Segment ofPort = offered("grpc://127.0.0.1:2", own)) {
        assertNotNull(ofPort);
      }
    } finally {
      Files.deleteIfExists(own.resolve(NAME));
      Files.delete(own);
    }
  }
}
