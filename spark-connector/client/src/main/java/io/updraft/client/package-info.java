// SPDX-License-Identifier: Apache-2.0

/**
 * One exchange with a pool, or one file that a writer writes, over Arrow Flight.
 *
 * <p>The package knows Arrow and the Updraft protocol and no Spark. Callers need {@link Exchange}
 * or {@link FileExchange}, what it is opened with ({@link ClientOptions}, {@link Endpoint}) and
 * what comes back ({@link Reply}, {@link ExchangeException}). gRPC stays inside: no signature names
 * it.
 *
 * <p>Both are built alike. A core decides ({@link ExchangeCore}, {@link FileCore}, and {@link
 * CallCore} for what they share) and knows neither lock nor clock. Its shell, the public class,
 * locks it, sends for it and waits ({@link CallShell} for what they share). A {@link FlightCall} is
 * one attempt: its connection, its messages, its end.
 *
 * <p>No file knows one that knows it, not even by a detour; {@code PackagesTest} checks that.
 */
package io.updraft.client;
