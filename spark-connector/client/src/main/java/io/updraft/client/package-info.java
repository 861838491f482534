// SPDX-License-Identifier: Apache-2.0

/**
 * Client for exchanges with a pool and for files written by a writer, over Arrow Flight.
 *
 * <p>The package depends on Arrow and the Updraft protocol, but not on Spark. Callers need {@link
 * Exchange} or {@link FileExchange}, the classes to open them ({@link ClientOptions}, {@link
 * Endpoint}) and their results ({@link Reply}, {@link ExchangeException}). gRPC stays internal: it
 * appears in no public signature.
 *
 * <p>Exchanges and files have the same structure. A core makes the decisions ({@link ExchangeCore},
 * {@link FileCore}, and {@link CallCore} for the shared part) and uses neither lock nor clock. The
 * core's shell, which is the public class, does the locking, sending and waiting ({@link CallShell}
 * for the shared part). A {@link FlightCall} is one attempt: its connection, its messages and its
 * end.
 *
 * <p>The files have no dependency cycles; {@code PackagesTest} checks that.
 */
package io.updraft.client;
