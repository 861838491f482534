// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** Whether request batches may be sent again when a worker or the connection is lost. */
public enum Replay {
  /**
   * For deterministic one-to-one functions: batches that were not answered are kept and sent to
   * another worker.
   */
  REPLAY,
  /** The exchange fails with its worker. */
  NEVER
}
