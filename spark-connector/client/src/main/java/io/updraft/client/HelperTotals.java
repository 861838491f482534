// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.Report;

/** Sums over the removed helpers of a task. */
final class HelperTotals {
  private final Report.Builder reports = Report.newBuilder();
  private long helpers;
  private long bytesSent;
  private long sharedBytes;
  private long bytesReceived;
  private long replays;

  void add(Helper helper) {
    helpers += helper.hasWorked() ? 1 : 0;
    bytesSent += helper.exchange.bytesSent();
    sharedBytes += helper.exchange.sharedBytes();
    bytesReceived += helper.exchange.bytesReceived();
    replays += helper.exchange.replays();
  }

  /** Add the report of a helper that has ended. */
  void add(Report report) {
    add(reports, report);
  }

  /** Return the sum of a report and the reports of the helpers. */
  Report with(Report report) {
    Report.Builder sum = report.toBuilder();
    add(sum, reports.build());
    return sum.build();
  }

  private static void add(Report.Builder sum, Report more) {
    sum.setBootMilliseconds(sum.getBootMilliseconds() + more.getBootMilliseconds())
        .setInitMilliseconds(sum.getInitMilliseconds() + more.getInitMilliseconds())
        .setTotalMilliseconds(sum.getTotalMilliseconds() + more.getTotalMilliseconds())
        .setProcessingMilliseconds(
            sum.getProcessingMilliseconds() + more.getProcessingMilliseconds())
        .setMemorySpilledBytes(sum.getMemorySpilledBytes() + more.getMemorySpilledBytes())
        .setDiskSpilledBytes(sum.getDiskSpilledBytes() + more.getDiskSpilledBytes())
        .addAllAccumulatorUpdates(more.getAccumulatorUpdatesList());
  }

  long helpers() {
    return helpers;
  }

  long bytesSent() {
    return bytesSent;
  }

  long sharedBytes() {
    return sharedBytes;
  }

  long bytesReceived() {
    return bytesReceived;
  }

  long replays() {
    return replays;
  }
}
