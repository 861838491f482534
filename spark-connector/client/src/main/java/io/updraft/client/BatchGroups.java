// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.RequestMetadata;

/**
 * Groups in a request batch: see "Groups" in proto/README.md.
 *
 * @param ends for each group that ends in the batch, the offset just after its last row, in order.
 *     Rows after the last offset belong to a group that continues in the next batch. Must not be
 *     modified
 * @param input for cogroups 0 is left and 1 is right; otherwise 0
 */
public record BatchGroups(int[] ends, int input) {
  /** Value for a function that does not work on groups. */
  public static final BatchGroups NONE = new BatchGroups(new int[0], 0);

  /** Return the metadata of the batch with this number. */
  RequestMetadata metadata(long sequence) {
    RequestMetadata.Builder metadata =
        RequestMetadata.newBuilder().setSequence(sequence).setInput(input);
    for (int end : ends) {
      metadata.addGroupEnds(end);
    }
    return metadata.build();
  }
}
