// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** Whom a call is for, in the words of errors, and the Spark settings that such errors name. */
public enum Peer {
  /** Runs functions. */
  POOL("pool", "worker", "spark.updraft.udf.", "updraft.pool_status"),
  /** Writes files. */
  WRITER("writer", "credit", "spark.updraft.write.", "updraft.writer_status");

  private final String noun;
  private final String grant;
  private final String prefix;
  private final String statusAction;

  Peer(String noun, String grant, String prefix, String statusAction) {
    this.noun = noun;
    this.grant = grant;
    this.prefix = prefix;
    this.statusAction = statusAction;
  }

  /** What it is called. */
  public String noun() {
    return noun;
  }

  /** What it gives to an exchange or a file that may begin. */
  String grant() {
    return grant;
  }

  /** The action by which it says what it is: its name in proto/README.md. */
  String statusAction() {
    return statusAction;
  }

  /** The setting for where it listens. */
  public String endpointSetting() {
    return prefix + "endpoint";
  }

  /** The setting for how long a connection may take. */
  public String connectTimeoutSetting() {
    return prefix + "connectTimeout";
  }

  /** The setting for how long a task waits for a peer that is full or restarts. */
  public String acquireTimeoutSetting() {
    return prefix + "acquireTimeout";
  }

  /** The setting for how long a peer may be silent. */
  public String replyTimeoutSetting() {
    return prefix + "replyTimeout";
  }

  /** The setting for how long an exchange may last. */
  public String deadlineSetting() {
    return prefix + "deadline";
  }

  /** The setting for how often in a row a task goes on at another worker. */
  public String maxReplaysSetting() {
    return prefix + "maxReplays";
  }

  /** The setting for what a task keeps of batches to send them again. */
  public String replayBytesSetting() {
    return prefix + "replayBytes";
  }

  /** The setting for how large a batch may be. */
  public String maxBatchBytesSetting() {
    return prefix + "maxBatchBytes";
  }

  /** The setting for the bearer token itself. */
  String tokenSetting() {
    return prefix + "token";
  }

  /** The setting for the file with the bearer token. */
  public String tokenFileSetting() {
    return prefix + "tokenFile";
  }

  /** The setting for the authorities that are trusted. */
  public String tlsCaFileSetting() {
    return prefix + "tls.caFile";
  }

  /** The setting for this client's certificate chain. */
  public String tlsCertificateFileSetting() {
    return prefix + "tls.certificateFile";
  }

  /** The setting for the key of that certificate. */
  public String tlsKeyFileSetting() {
    return prefix + "tls.keyFile";
  }
}
