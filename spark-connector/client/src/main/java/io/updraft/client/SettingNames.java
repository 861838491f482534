// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** The Spark settings that a client's options come from: errors say which one to look at. */
public final class SettingNames {
  public static final String ENDPOINT = "spark.updraft.udf.endpoint";
  public static final String TOKEN_FILE = "spark.updraft.udf.tokenFile";
  public static final String TLS_CA_FILE = "spark.updraft.udf.tls.caFile";
  public static final String TLS_CERTIFICATE_FILE = "spark.updraft.udf.tls.certificateFile";
  public static final String TLS_KEY_FILE = "spark.updraft.udf.tls.keyFile";

  private SettingNames() {}
}
