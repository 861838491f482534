// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** Whether request batches may be sent again when a worker or the connection is lost. */
public enum Replay {
  /**
   * For deterministic one-to-one functions: batches that were not answered are kept and sent to
   * another worker.
   */
  REPLAY,
  /**
   * For deterministic functions that answer when they like: all batches are kept until the task
   * takes the first result, and until then another worker may begin anew.
   */
  FROM_THE_START,
  /** The exchange fails with its worker. */
  NEVER
}
