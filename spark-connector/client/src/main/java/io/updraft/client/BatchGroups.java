// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.RequestMetadata;

/**
 * Which groups a request batch has: see "Groups" in proto/README.md.
 *
 * @param ends rows of the batch before which a group ends, in order; a group without an end here
 *     goes on in the next batch. Not to be changed
 * @param input of cogroups 0 for the left and 1 for the right, otherwise 0
 */
public record BatchGroups(int[] ends, int input) {
  /** A batch of a function that takes no groups. */
  public static final BatchGroups NONE = new BatchGroups(new int[0], 0);

  /** What is said with the batch of this number. */
  RequestMetadata metadata(long sequence) {
    RequestMetadata.Builder metadata =
        RequestMetadata.newBuilder().setSequence(sequence).setInput(input);
    for (int end : ends) {
      metadata.addGroupEnds(end);
    }
    return metadata.build();
  }
}
