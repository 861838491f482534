// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * What an exchange costs: sends batches of one int64 column to a pool's registered echo function
 * and reads them back. A program, not a test: {@code EchoBenchmark <endpoint> <batch bytes>
 * <window> <total MB>} prints MB/s and this process's CPU seconds per GB of requests.
 */
public final class EchoBenchmark {
  private EchoBenchmark() {}

  /** Runs three rounds; the first warms up. */
  public static void main(String[] arguments) throws InterruptedException {
    ClientOptions options =
        ClientOptions.builder(Endpoint.parse(arguments[0]))
            .windowBatches(Integer.parseInt(arguments[2]))
            .windowBytes(64L << 20)
            .build();
    int rows = Integer.parseInt(arguments[1]) / 8;
    int batches = (int) (Long.parseLong(arguments[3]) * 1_000_000 / (8L * rows));
    for (int round = 0; round < 3; round++) {
      run(options, rows, batches);
    }
  }

  private static void run(ClientOptions options, int rows, int batches)
      throws InterruptedException {
    OperatingSystemMXBean system =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long cpu = system.getProcessCpuTime();
    long start = System.nanoTime();
    exchange(options, rows, batches);
    double seconds = (System.nanoTime() - start) / 1e9;
    double cpuSeconds = (system.getProcessCpuTime() - cpu) / 1e9;
    double gigabytes = 8.0 * rows * batches / 1e9;
    System.out.printf(
        "%.0f MB/s, %.2f client CPU-s/GB%n", 1000 * gigabytes / seconds, cpuSeconds / gigabytes);
  }

  private static void exchange(ClientOptions options, int rows, int batches)
      throws InterruptedException {
    try (BufferAllocator allocator = new RootAllocator();
        ArrowRecordBatch batch = Batches.counting(allocator, 0, rows);
        Exchange exchange =
            Exchange.open(
                options, ExchangeFixture.COMMAND, Batches.SCHEMA, allocator, Replay.REPLAY)) {
      int sent = 0;
      while (true) {
        while (sent < batches && exchange.hasRoom()) {
          exchange.send(again(batch), rows);
          sent++;
          if (sent == batches) {
            exchange.finishSending();
          }
        }
        Reply reply = exchange.take();
        if (reply.kind() == Reply.Kind.END) {
          return;
        }
        if (reply.kind() == Reply.Kind.BATCH) {
          reply.batch().close();
        }
      }
    }
  }

  /** The same memory with references of its own. */
  private static ArrowRecordBatch again(ArrowRecordBatch batch) {
    for (ArrowBuf buffer : batch.getBuffers()) {
      buffer.getReferenceManager().retain();
    }
    try {
      return new ArrowRecordBatch(batch.getLength(), batch.getNodes(), batch.getBuffers());
    } finally {
      for (ArrowBuf buffer : batch.getBuffers()) {
        buffer.getReferenceManager().release();
      }
    }
  }
}
