// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.Admitted;
import io.updraft.proto.v1.ArtifactsWanted;
import io.updraft.proto.v1.BatchPart;
import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.Finish;
import io.updraft.proto.v1.PayloadWanted;
import io.updraft.proto.v1.ReplyMetadata;
import io.updraft.proto.v1.Segment;
import io.updraft.proto.v1.SegmentRange;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

final class ReplyProtocolTest {
  private static final byte[] NOTHING = {};
  private static final byte[] SCHEMA =
      RequestBatch.bytes(MessageSerializer.serializeMetadata(Batches.SCHEMA, IpcOption.DEFAULT));

  private static final int MOST_BATCH_BYTES = 64;
  private static final ClientOptions OPTIONS =
      ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:9"))
          .changed(o -> o.maxBatchBytes = MOST_BATCH_BYTES);

  private final RootAllocator root = new RootAllocator();
  private final ReplyProtocol protocol =
      new ReplyProtocol(OPTIONS, range -> zeros((int) range.getSizeBytes()));

  /** Fail the test if anything is still allocated. */
  @AfterEach
  void closeAllocator() {
    protocol.close();
    root.close();
  }

  private ArrowBuf zeros(int bytes) {
    ArrowBuf buffer = root.buffer(bytes);
    return buffer.setZero(0, bytes).writerIndex(bytes);
  }

  private ReplyEvent accept(ReplyMetadata.Builder metadata, byte[] header, int bodyBytes)
      throws MalformedReplyException {
    ArrowBuf body = bodyBytes == 0 ? null : zeros(bodyBytes);
    byte[] appMetadata = metadata.build().toByteArray();
    try (IncomingMessage message = new IncomingMessage(header, appMetadata, body, 0)) {
      return protocol.accept(message);
    }
  }

  private ReplyEvent accept(ReplyMetadata.Builder metadata) throws MalformedReplyException {
    return accept(metadata, NOTHING, 0);
  }

  private void acceptSchema() throws MalformedReplyException {
    acceptSchema("");
  }

  private void acceptSchema(String segmentDirectory) throws MalformedReplyException {
    Admitted admitted = Admitted.newBuilder().setSegmentDirectory(segmentDirectory).build();
    accept(ReplyMetadata.newBuilder().setAdmitted(admitted));
    assertInstanceOf(ReplyEvent.SchemaKnown.class, accept(ReplyMetadata.newBuilder(), SCHEMA, 0));
  }

  private void acceptBatch(long sequence) throws MalformedReplyException {
    ReplyEvent event = accept(sequence(sequence), Batches.header(4), 32);
    assertInstanceOf(ReplyEvent.Batch.class, event);
    ((ReplyEvent.Batch) event).batch().close();
  }

  private static ReplyMetadata.Builder sequence(long number) {
    return ReplyMetadata.newBuilder().setSequence(number).setConsumed(1);
  }

  private static ReplyMetadata.Builder part(long bodyBytes, long offset) {
    return ReplyMetadata.newBuilder()
        .setPart(BatchPart.newBuilder().setBodyBytes(bodyBytes).setOffset(offset));
  }

  @Test
  void the_parts_of_a_batch_make_one() throws Exception {
    acceptSchema();
    assertInstanceOf(ReplyEvent.Credit.class, accept(part(32, 0), NOTHING, 8));
    assertInstanceOf(ReplyEvent.Credit.class, accept(part(32, 8), NOTHING, 16));
    ReplyEvent.Batch batch =
        assertInstanceOf(ReplyEvent.Batch.class, accept(sequence(1), Batches.header(4), 8));
    assertEquals(4, batch.batch().getLength());
    batch.drop();
    acceptBatch(2);
  }

  @Test
  void parts_that_do_not_follow_one_another_are_refused() throws Exception {
    refused("before its schema", part(32, 0), NOTHING, 8);
    acceptSchema();
    refused("larger than the 64 that can be received", part(65, 0), NOTHING, 8);
    refused("larger than", part(-1, 0), NOTHING, 8);
    accept(part(32, 0), NOTHING, 8);
    refused("has a header", part(32, 8), Batches.header(4), 8);
    refused("expected offset 8 of 32", part(32, 9), NOTHING, 8);
    refused("expected offset 8 of 32", part(40, 8), NOTHING, 8);
    refused("has 0 bytes, expected 1 to 24", part(32, 8), NOTHING, 0);
    refused("has 25 bytes, expected 1 to 24", part(32, 8), NOTHING, 25);
    refused("finished inside a batch", finish(0, 0), NOTHING, 0);
    refused("have 16 of 32 bytes", sequence(1), Batches.header(4), 8);
  }

  private static ReplyMetadata.Builder finish(long batches, long rows) {
    return ReplyMetadata.newBuilder()
        .setFinish(Finish.newBuilder().setBatches(batches).setRows(rows));
  }

  private void refused(String part, ReplyMetadata.Builder metadata, byte[] header, int bodyBytes) {
    MalformedReplyException error =
        assertThrows(MalformedReplyException.class, () -> accept(metadata, header, bodyBytes));
    assertTrue(error.getMessage().contains(part), error.getMessage());
  }

  @Test
  void schema_batches_credits_and_a_true_finish_are_in_order() throws Exception {
    assertInstanceOf(ReplyEvent.Credit.class, accept(ReplyMetadata.newBuilder().setConsumed(2)));
    acceptSchema();
    assertEquals(2, protocol.consumed());
    accept(ReplyMetadata.newBuilder().setConsumed(3));
    assertEquals(3, protocol.consumed());
    ReplyEvent batch = accept(sequence(1).setConsumed(4), Batches.header(4), 32);
    assertInstanceOf(ReplyEvent.Batch.class, batch);
    ((ReplyEvent.Batch) batch).batch().close();
    assertEquals(4, protocol.consumed());
    assertEquals(ReplyProtocol.State.STREAMING, protocol.state());
    assertInstanceOf(ReplyEvent.Finished.class, accept(finish(1, 4)));
    assertEquals(ReplyProtocol.State.FINISHED, protocol.state());
  }

  @Test
  void a_function_may_finish_without_a_schema() throws Exception {
    assertInstanceOf(ReplyEvent.Finished.class, accept(finish(0, 0)));
  }

  @Test
  void an_error_is_the_last_message() throws Exception {
    accept(ReplyMetadata.newBuilder().setError(Error.getDefaultInstance()));
    refused("after its last one", ReplyMetadata.newBuilder(), NOTHING, 0);
  }

  @Test
  void a_finish_that_counts_otherwise_is_refused() throws Exception {
    acceptSchema();
    acceptBatch(1);
    refused("announced 2 batches with 4 rows", finish(2, 4), NOTHING, 0);
  }

  @Test
  void a_gap_in_the_sequence_is_refused() throws Exception {
    acceptSchema();
    acceptBatch(1);
    refused("batch 3 after batch 1", sequence(3), Batches.header(4), 32);
  }

  @Test
  void a_repeated_batch_is_refused() throws Exception {
    acceptSchema();
    acceptBatch(1);
    refused("batch 1 after batch 1", sequence(1), Batches.header(4), 32);
  }

  @Test
  void a_batch_before_the_schema_is_refused() {
    refused("before its schema", sequence(1), Batches.header(4), 32);
  }

  @Test
  void a_second_schema_is_refused() throws Exception {
    acceptSchema();
    refused("without a sequence number", ReplyMetadata.newBuilder(), SCHEMA, 0);
  }

  @Test
  void a_sequence_without_a_batch_is_refused() throws Exception {
    acceptSchema();
    refused("reply 1 has no batch", sequence(1), NOTHING, 0);
  }

  @Test
  void a_batch_without_rows_needs_no_body() throws Exception {
    acceptSchema();
    ReplyEvent event = accept(sequence(1), Batches.header(0), 0);
    try (ArrowRecordBatch batch = ((ReplyEvent.Batch) event).batch()) {
      assertEquals(0, batch.getLength());
    }
  }

  @Test
  void a_batch_of_rows_needs_its_body() throws Exception {
    acceptSchema();
    refused("32 bytes at offset 0 exceeds a body of 0", sequence(1), Batches.header(4), 0);
  }

  @Test
  void credit_that_goes_back_is_refused() throws Exception {
    accept(ReplyMetadata.newBuilder().setConsumed(5));
    refused(
        "batch 4 as consumed, after batch 5",
        ReplyMetadata.newBuilder().setConsumed(4),
        NOTHING,
        0);
  }

  @Test
  void a_buffer_beyond_the_body_is_refused() throws Exception {
    acceptSchema();
    refused("32 bytes at offset 0 exceeds a body of 8", sequence(1), Batches.header(4), 8);
  }

  @Test
  void garbage_instead_of_arrow_is_refused() throws Exception {
    accept(ReplyMetadata.newBuilder().setAdmitted(Admitted.getDefaultInstance()));
    refused("invalid Arrow data", ReplyMetadata.newBuilder(), new byte[] {1, 2, 3, 4, 5}, 0);
  }

  @Test
  void results_of_an_exchange_that_was_not_admitted_are_refused() throws Exception {
    refused("without a sequence number", ReplyMetadata.newBuilder(), SCHEMA, 0);
    acceptSchema();
    refused(
        "a second time",
        ReplyMetadata.newBuilder().setAdmitted(Admitted.getDefaultInstance()),
        NOTHING,
        0);
  }

  @Test
  void a_pool_that_has_every_artifact_asks_for_nothing_more() throws Exception {
    var some = ArtifactsWanted.newBuilder().addSha256(ByteString.copyFromUtf8("digest"));
    accept(ReplyMetadata.newBuilder().setArtifactsWanted(some));
    assertEquals(ReplyProtocol.State.INIT, protocol.state());
    accept(ReplyMetadata.newBuilder().setArtifactsWanted(ArtifactsWanted.getDefaultInstance()));
    assertEquals(ReplyProtocol.State.PROVIDED, protocol.state());
    refused(
        "after it had them all", ReplyMetadata.newBuilder().setArtifactsWanted(some), NOTHING, 0);
    var function = PayloadWanted.getDefaultInstance();
    refused("after it had it", ReplyMetadata.newBuilder().setPayloadWanted(function), NOTHING, 0);
  }

  @Test
  void row_ends_are_offsets_into_their_batch() throws Exception {
    acceptSchema();
    ReplyMetadata.Builder metadata = sequence(1).addAllRowEnds(List.of(0, 3, 3, 4));
    ReplyEvent.Batch event =
        assertInstanceOf(ReplyEvent.Batch.class, accept(metadata, Batches.header(4), 32));
    event.batch().close();
    assertArrayEquals(new int[] {0, 3, 3, 4}, event.rowEnds());
    String part = "row ends of reply 2";
    refused(part, sequence(2).addAllRowEnds(List.of(5)), Batches.header(4), 32);
    refused(part, sequence(2).addAllRowEnds(List.of(3, 2)), Batches.header(4), 32);
    refused(part, sequence(2).addAllRowEnds(List.of(-1)), Batches.header(4), 32);
  }

  private static ReplyMetadata.Builder offer() {
    return ReplyMetadata.newBuilder().setSegment(Segment.getDefaultInstance());
  }

  private static ReplyMetadata.Builder placed(long number) {
    return sequence(number).setBody(SegmentRange.newBuilder().setSizeBytes(32));
  }

  @Test
  void a_segment_is_offered_once_to_an_admitted_exchange() throws MalformedReplyException {
    assertThrows(MalformedReplyException.class, () -> accept(offer()));
    acceptSchema("/dev/shm/updraft");
    assertEquals(
        new ReplyEvent.SegmentOffered("/dev/shm/updraft", Segment.getDefaultInstance()),
        accept(offer()));
    assertThrows(MalformedReplyException.class, () -> accept(offer()));
  }

  @Test
  void a_function_cannot_offer_a_segment_where_the_front_has_none() throws MalformedReplyException {
    acceptSchema();
    assertThrows(MalformedReplyException.class, () -> accept(offer()));
  }

  @Test
  void the_body_of_a_batch_may_be_in_the_segment() throws MalformedReplyException {
    acceptSchema();
    ReplyEvent event = accept(placed(1), Batches.header(4), 0);
    ((ReplyEvent.Batch) event).batch().close();
    assertThrows(MalformedReplyException.class, () -> accept(placed(2), Batches.header(4), 32));
  }
}
