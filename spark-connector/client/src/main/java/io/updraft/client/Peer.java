// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/**
 * Kind of service that a call goes to, with the service's name and Spark settings for error
 * messages.
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

  /** Return the name of a setting of this service. */
  public String setting(Setting setting) {
    return prefix + setting.name;
  }

  /**
   * Return a setting in brackets, to append to an error; empty for a writer, because no setting
   * limits the time of a file.
   */
  String note(Setting setting) {
    return this == POOL ? " (" + setting(setting) + ")" : "";
  }

  /** Settings of the connection that errors mention, by their names without the prefix. */
  public enum Setting {
    ENDPOINT("endpoint"),
    TOKEN("token"),
    TOKEN_FILE("tokenFile"),
    TLS_CA_FILE("tls.caFile"),
    TLS_CERTIFICATE_FILE("tls.certificateFile"),
    TLS_KEY_FILE("tls.keyFile"),
    CONNECT_TIMEOUT("connectTimeout"),
    ACQUIRE_TIMEOUT("acquireTimeout"),
    REPLY_TIMEOUT("replyTimeout"),
    DEADLINE("deadline"),
    WINDOW_BYTES("windowBytes");

    private final String name;

    Setting(String name) {
      this.name = name;
    }
  }
}
