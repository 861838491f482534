// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/**
 * Kind of service that a call is for, with its name in errors and the Spark settings that such
 * errors mention.
 */
public enum Peer {
  /** Service that runs functions. */
  POOL("pool", "worker", "spark.updraft.udf.", "updraft.pool_status"),
  /** Service that writes files. */
  WRITER("writer", "credit", "spark.updraft.write.", "updraft.writer_status");

  private final String noun;
  private final String grantedNoun;
  private final String prefix;
  private final String statusAction;

  Peer(String noun, String grantedNoun, String prefix, String statusAction) {
    this.noun = noun;
    this.grantedNoun = grantedNoun;
    this.prefix = prefix;
    this.statusAction = statusAction;
  }

  /** Return the name of the service in errors. */
  public String noun() {
    return noun;
  }

  /** Return the noun for what the service grants an exchange or a file: a worker or credit. */
  String grantedNoun() {
    return grantedNoun;
  }

  /** Return the name of the service's status action in proto/README.md. */
  String statusAction() {
    return statusAction;
  }

  /** Return the setting for the address of the service. */
  public String endpointSetting() {
    return prefix + "endpoint";
  }

  /** Return the setting for the connect timeout. */
  public String connectTimeoutSetting() {
    return prefix + "connectTimeout";
  }

  /** Return the setting for how long a task waits for a service that is full or restarting. */
  public String acquireTimeoutSetting() {
    return prefix + "acquireTimeout";
  }

  /** Return the end of an error about a silent service: the setting, if the user can set it. */
  String replyTimeoutNote() {
    return this == POOL ? " (" + prefix + "replyTimeout)" : "";
  }

  /** Return the end of an error about a late exchange: the setting, if the user can set it. */
  String deadlineNote() {
    return this == POOL ? " (" + prefix + "deadline)" : "";
  }

  /** Return the setting for how many times in a row a task may move to another worker. */
  public String maxReplaysSetting() {
    return prefix + "maxReplays";
  }

  /** Return the setting for the bytes of batches that a task keeps for a replay. */
  public String replayBytesSetting() {
    return prefix + "replayBytes";
  }

  /** Return the setting for the bearer token itself. */
  String tokenSetting() {
    return prefix + "token";
  }

  /** Return the setting for the file with the bearer token. */
  public String tokenFileSetting() {
    return prefix + "tokenFile";
  }

  /** Return the setting for the trusted certificate authorities. */
  public String tlsCaFileSetting() {
    return prefix + "tls.caFile";
  }

  /** Return the setting for this client's certificate chain. */
  public String tlsCertificateFileSetting() {
    return prefix + "tls.certificateFile";
  }

  /** Return the setting for the key of that certificate. */
  public String tlsKeyFileSetting() {
    return prefix + "tls.keyFile";
  }
}
