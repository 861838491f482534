// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** What is known of an endpoint that cannot be reached now: whether it pays to wait for it. */
enum Reach {
  /** Its name has no address, or its socket no directory: most likely it is misspelt. */
  UNRESOLVED,
  /** Its name has an address; this JVM has not talked to it yet. */
  RESOLVED,
  /** It has answered this JVM before: most likely it restarts. */
  ANSWERED
}
