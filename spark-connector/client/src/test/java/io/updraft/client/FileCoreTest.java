// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.Bound;
import io.updraft.proto.v1.ColumnStatistics;
import io.updraft.proto.v1.Delivery;
import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.Receipt;
import io.updraft.proto.v1.WriteReplyMetadata;
import io.updraft.proto.v1.WriteRequestMetadata;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

class FileCoreTest {
  private static final int ROWS = 100;
  private static final int BYTES = 8 * ROWS;

  private final ClientOptions options =
      ClientOptions.of(Peer.WRITER, TestCall.newEndpoint())
          .changed(
              o -> {
                o.windowBytes = 2 * BYTES;
                o.acquireTimeout = Duration.ofSeconds(10);
              });

  private FileCore opened(Delivery delivery) {
    FileCore core = new FileCore(options, delivery, 0);
    assertTrue(core.begin(new TestCall(false)));
    core.opened();
    return core;
  }

  private static void admit(FileCore core) {
    core.admit(new RequestBatch(SingleBatch.unowned(ROWS), BatchGroups.NONE));
  }

  private static WriteReplyMetadata credit(long number) {
    return WriteReplyMetadata.newBuilder().setCredit(number).build();
  }

  private static WriteReplyMetadata stored(long number) {
    return WriteReplyMetadata.newBuilder().setCredit(number).setStored(number).build();
  }

  private static WriteReplyMetadata receipt(long batches, long rows, long fileBytes) {
    Receipt receipt =
        Receipt.newBuilder().setBatches(batches).setRows(rows).setFileBytes(fileBytes).build();
    return WriteReplyMetadata.newBuilder().setReceipt(receipt).build();
  }

  private static WriteReplyMetadata error(ErrorKind kind) {
    return WriteReplyMetadata.newBuilder().setError(Error.newBuilder().setKind(kind)).build();
  }

  @Test
  void a_batch_is_asked_for_at_once_and_sent_with_credit_when_the_transport_has_room()
      throws Exception {
    FileCore core = opened(Delivery.DELIVERY_DIRECT);
    admit(core);
    assertEquals(BYTES, core.nextToSend(true).metadata().getAsk().getBodyBytes());
    assertNull(core.nextToSend(true));
    core.onReply(core.call(), credit(1), 0, 0);
    assertNull(core.nextToSend(false));
    CallCore.Step<WriteRequestMetadata> step = core.nextToSend(true);
    assertEquals(1, step.metadata().getSequence());
    assertNotNull(step.slice());
  }

  @Test
  void nothing_goes_before_the_message_that_says_what_to_write() {
    FileCore core = new FileCore(options, Delivery.DELIVERY_DIRECT, 0);
    admit(core);
    assertTrue(core.begin(new TestCall(false)));
    assertNull(core.nextToSend(true));
    core.opened();
    assertTrue(core.nextToSend(true).metadata().hasAsk());
  }

  @Test
  void batches_beyond_the_window_wait_and_a_single_one_never_does() throws Exception {
    FileCore core = opened(Delivery.DELIVERY_DIRECT);
    assertTrue(core.hasRoom(100L * BYTES));
    admit(core);
    assertTrue(core.hasRoom(BYTES));
    admit(core);
    assertFalse(core.hasRoom(1));
    core.nextToSend(true);
    core.onReply(core.call(), credit(1), 0, 0);
    assertTrue(core.nextToSend(true).metadata().hasAsk());
    assertNotNull(core.nextToSend(true).slice());
    assertTrue(core.hasRoom(BYTES));
  }

  @Test
  void the_finish_follows_the_last_batch_and_the_receipt_agrees_with_what_was_sent()
      throws Exception {
    FileCore core = opened(Delivery.DELIVERY_DIRECT);
    admit(core);
    core.finishSending();
    core.nextToSend(true);
    assertNull(core.nextToSend(true));
    core.onReply(core.call(), credit(1), 0, 0);
    core.nextToSend(true);
    CallCore.Step<WriteRequestMetadata> last = core.nextToSend(true);
    assertTrue(last.last());
    assertEquals(ROWS, last.metadata().getFinish().getRows());
    assertThrows(
        MalformedReplyException.class,
        () -> core.onReply(core.call(), receipt(1, ROWS + 1, 5), 0, 0));
    ColumnStatistics column =
        ColumnStatistics.newBuilder()
            .setPath("n")
            .setMinimum(Bound.newBuilder().setInteger(-1).setExact(true))
            .build();
    WriteReplyMetadata reply = receipt(1, ROWS, 5);
    Receipt proof = reply.getReceipt().toBuilder().addColumns(column).build();
    core.onReply(core.call(), reply.toBuilder().setReceipt(proof).build(), 0, 0);
    assertEquals(5, core.receipt().getFileBytes());
    assertEquals(List.of(column), core.receipt().getColumnsList());
  }

  @Test
  void a_returned_file_is_whole_when_every_part_is_stored() throws Exception {
    FileCore core = opened(Delivery.DELIVERY_RETURN);
    core.finishSending();
    core.nextToSend(true);
    core.onReply(core.call(), WriteReplyMetadata.newBuilder().setOffset(0).build(), 7, 0);
    WriteReplyMetadata gap = WriteReplyMetadata.newBuilder().setOffset(9).build();
    assertThrows(MalformedReplyException.class, () -> core.onReply(core.call(), gap, 1, 0));
    assertThrows(
        MalformedReplyException.class, () -> core.onReply(core.call(), receipt(0, 0, 8), 0, 0));
    core.onReply(core.call(), receipt(0, 0, 7), 0, 0);
    assertNull(core.receipt());
    core.onStored(7, 0);
    assertNotNull(core.receipt());
  }

  @Test
  void who_waits_for_the_last_part_to_be_stored_waits_to_be_told() throws Exception {
    FileCore core = opened(Delivery.DELIVERY_RETURN);
    core.finishSending();
    core.nextToSend(true);
    core.onReply(core.call(), WriteReplyMetadata.newBuilder().setOffset(0).build(), 7, 0);
    core.onReply(core.call(), receipt(0, 0, 7), 0, 0);
    assertFalse(core.isWhole());
    assertTrue(core.restNanos(0, 1_000) >= Duration.ofSeconds(1).toNanos());
  }

  @Test
  void a_full_writer_is_asked_again_when_it_says_and_for_the_same_batches() throws Exception {
    FileCore core = opened(Delivery.DELIVERY_DIRECT);
    admit(core);
    core.nextToSend(true);
    core.onReply(core.call(), error(ErrorKind.ERROR_KIND_QUOTA), 0, 0);
    Metadata trailers = new Metadata();
    trailers.put(Metadata.Key.of("retry-after-ms", Metadata.ASCII_STRING_MARSHALLER), "500");
    core.onClosed(core.call(), Status.RESOURCE_EXHAUSTED, trailers, 0);
    assertFalse(core.isRecoveryDue(Duration.ofMillis(499).toNanos()));
    assertTrue(core.isRecoveryDue(Duration.ofMillis(750).toNanos()));
    assertTrue(core.begin(new TestCall(false)));
    core.opened();
    assertTrue(core.nextToSend(true).metadata().hasAsk());
  }

  @Test
  void a_file_that_has_lost_a_batch_fails() throws Exception {
    FileCore core = opened(Delivery.DELIVERY_DIRECT);
    admit(core);
    core.nextToSend(true);
    core.onReply(core.call(), credit(1), 0, 0);
    core.nextToSend(true);
    core.onClosed(core.call(), Status.UNAVAILABLE, new Metadata(), 0);
    ExchangeException failure = assertThrows(ExchangeException.class, core::check);
    assertTrue(failure.getMessage().contains("writer at " + options.endpoint()));
  }

  @Test
  void a_file_that_has_got_a_part_and_lost_its_call_fails_with_the_reason() throws Exception {
    FileCore core = opened(Delivery.DELIVERY_RETURN);
    core.finishSending();
    assertTrue(core.nextToSend(true).last());
    core.onReply(core.call(), WriteReplyMetadata.newBuilder().setOffset(0).build(), 7, 0);
    core.onClosed(core.call(), Status.UNAVAILABLE, new Metadata(), 0);
    assertTrue(messageOf(core).contains("writer at " + options.endpoint()));
  }

  private FileCore told(Delivery delivery) throws Exception {
    FileCore core = opened(delivery);
    admit(core);
    core.finishSending();
    core.nextToSend(true);
    core.onReply(core.call(), credit(1), 0, 0);
    core.nextToSend(true);
    assertTrue(core.nextToSend(true).last());
    return core;
  }

  private static String messageOf(FileCore core) {
    return assertThrows(ExchangeException.class, core::check).getMessage();
  }

  @Test
  void a_file_whose_call_is_lost_after_the_finish_may_have_been_published() throws Exception {
    for (Status status : List.of(Status.DEADLINE_EXCEEDED, Status.UNAVAILABLE, Status.OK)) {
      FileCore core = told(Delivery.DELIVERY_DIRECT);
      core.onClosed(core.call(), status, new Metadata(), 0);
      assertTrue(messageOf(core).endsWith("so the writer may have published it"));
    }
    FileCore silent = told(Delivery.DELIVERY_DIRECT);
    silent.fail(Failure.deadline("no progress"));
    assertTrue(messageOf(silent).endsWith("so the writer may have published it"));
  }

  @Test
  void what_the_writer_says_of_a_file_needs_no_addition() throws Exception {
    FileCore answered = told(Delivery.DELIVERY_DIRECT);
    answered.onReply(answered.call(), error(ErrorKind.ERROR_KIND_SINK), 0, 0);
    FileCore returned = told(Delivery.DELIVERY_RETURN);
    returned.onClosed(returned.call(), Status.UNAVAILABLE, new Metadata(), 0);
    FileCore unfinished = opened(Delivery.DELIVERY_DIRECT);
    unfinished.fail(Failure.deadline("no progress"));
    for (FileCore core : List.of(answered, returned, unfinished)) {
      assertFalse(messageOf(core).contains("may have published it"));
    }
  }

  @Test
  void credit_for_what_nobody_asked_for_is_malformed() {
    FileCore core = opened(Delivery.DELIVERY_DIRECT);
    assertThrows(MalformedReplyException.class, () -> core.onReply(core.call(), credit(1), 0, 0));
  }

  @Test
  void a_synchronous_file_is_stored_when_the_writer_says_so_of_its_last_batch() throws Exception {
    FileCore core = opened(Delivery.DELIVERY_DIRECT);
    assertTrue(core.isStored());
    admit(core);
    core.nextToSend(true);
    core.onReply(core.call(), credit(1), 0, 0);
    assertFalse(core.isStored());
    assertThrows(MalformedReplyException.class, () -> core.onReply(core.call(), stored(1), 0, 0));
    core.nextToSend(true);
    assertFalse(core.isStored());
    core.onReply(core.call(), stored(1), 0, 0);
    assertTrue(core.isStored());
  }

  @Test
  void a_file_that_is_given_up_says_so_once_and_sends_nothing_more() throws Exception {
    FileCore core = opened(Delivery.DELIVERY_DIRECT);
    admit(core);
    core.nextToSend(true);
    core.onReply(core.call(), credit(1), 0, 0);
    assertEquals("why", core.abort("why").metadata().getAbort().getReason());
    assertNull(core.nextToSend(true));
    assertNull(core.abort("again"));
  }
}
