// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

final class BatchSlicerTest {
  private static final int MESSAGE_BYTES = 1 << 20;

  /** Try body sizes around one message and around two parts, given as bytes less than a message. */
  @ParameterizedTest
  @ValueSource(ints = {-600_000, -8, 0, 8, 64, 512, 1_024, 65_536, 131_072, 500_000})
  void every_slice_leaves_room_for_what_is_said_of_it(int lessBytes) {
    try (var root = new RootAllocator();
        RequestBatch batch = batch(root, (MESSAGE_BYTES - lessBytes) / 8)) {
      BatchSlicer slicer = new BatchSlicer(MESSAGE_BYTES);
      List<BatchSlicer.Slice> slices = new ArrayList<>();
      do {
        slices.add(slicer.next(batch));
      } while (!slices.get(slices.size() - 1).isLast());
      long sentBytes = 0;
      for (BatchSlicer.Slice slice : slices) {
        assertEquals(sentBytes, slice.startByte());
        sentBytes = slice.endByte();
        int messageBytes =
            slice.header().length + slice.bodyBytes() + BatchSlicer.MOST_BESIDE_BYTES;
        assertTrue(messageBytes <= MESSAGE_BYTES, messageBytes + " bytes");
      }
      assertEquals(batch.bodyBytes(), sentBytes);
    }
  }

  private static RequestBatch batch(RootAllocator root, int rows) {
    return new RequestBatch(Batches.counting(root, 0, rows), BatchGroups.NONE);
  }
}
