// SPDX-License-Identifier: Apache-2.0

/**
 * Client for one exchange with a pool, or one file written by a writer, over Arrow Flight.
 *
 * <p>The package knows Arrow and the Updraft protocol, but not Spark. Callers need {@link Exchange}
 * or {@link FileExchange}, the classes to open them ({@link ClientOptions}, {@link Endpoint}) and
 * their results ({@link Reply}, {@link ExchangeException}). gRPC stays internal: it appears in no
 * public signature.
 *
 * <p>Exchanges and files have the same structure. A core decides ({@link ExchangeCore}, {@link
 * FileCore}, and {@link CallCore} for the shared part) and uses neither lock nor clock. Its shell,
 * the public class, locks it, sends for it and waits ({@link CallShell} for the shared part). A
 * {@link FlightCall} is one attempt: its connection, its messages, its end.
 *
 * <p>The files have no dependency cycles; {@code PackagesTest} checks that.
 */
package io.updraft.client;
