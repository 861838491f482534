// SPDX-License-Identifier: Apache-2.0

/**
 * One exchange with a pool, over Arrow Flight.
 *
 * <p>The package knows Arrow and the Updraft protocol and no Spark. Callers need {@link Exchange},
 * what it is opened with ({@link ClientOptions}, {@link Endpoint}) and what comes back ({@link
 * Reply}, {@link ExchangeException}); everything else is package-private. gRPC stays inside: no
 * signature names it.
 */
package io.updraft.client;
