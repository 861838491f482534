// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/**
 * Knowledge about an endpoint that is unreachable now, which decides whether waiting for it makes
 * sense.
 */
enum Reachability {
  /**
   * Its name has no address, or the directory of its socket is missing: most likely it is misspelt.
   */
  UNRESOLVED,
  /** Its name has an address, but it has not answered this JVM yet. */
  RESOLVED,
  /** It has answered this JVM before: most likely it is restarting. */
  ANSWERED
}
