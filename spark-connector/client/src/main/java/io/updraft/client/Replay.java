// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** Policy for sending request batches again after the loss of a worker or the connection. */
public enum Replay {
  /**
   * For deterministic one-to-one functions: keep unanswered batches, and send them to another
   * worker if their worker is lost. The exchange fails instead if the function has accumulators and
   * the lost worker has answered a batch.
   */
  REPLAY,
  /**
   * For deterministic functions whose replies do not match requests one to one: keep all batches
   * until the task takes the first result. If the worker is lost before that, another worker starts
   * over.
   */
  FROM_THE_START,
  /** Fail the exchange if its worker is lost. */
  NEVER
}
