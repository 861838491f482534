// SPDX-License-Identifier: Apache-2.0

import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A resource manager and node managers in one JVM: writes their yarn-site.xml, then serves until its input ends. */
public final class MiniYarn {
  private static final int NODES = 2;
  private static final int MEMORY_MIB = 4096;

  private MiniYarn() {}

  public static void main(String[] arguments) throws Exception {
    Path site = Path.of(arguments[0]);
    YarnConfiguration configuration = new YarnConfiguration();
    configuration.setInt(YarnConfiguration.NM_PMEM_MB, MEMORY_MIB);
    configuration.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 256);
    configuration.set("yarn.scheduler.capacity.root.queues", "default");
    configuration.set("yarn.scheduler.capacity.root.default.capacity", "100");
    // The disks of this machine may be fuller than YARN allows on a node.
    configuration.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
    configuration.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
    try (MiniYARNCluster cluster = new MiniYARNCluster("updraft", NODES, 1, 1)) {
      cluster.init(configuration);
      cluster.start();
      if (!cluster.waitForNodeManagersToConnect(60_000)) {
        throw new IllegalStateException("node managers did not connect");
      }
      Path unfinished = site.resolveSibling(site.getFileName() + ".part");
      try (OutputStream out = new FileOutputStream(unfinished.toFile())) {
        cluster.getConfig().writeXml(out);
      }
      Files.move(unfinished, site, StandardCopyOption.ATOMIC_MOVE);
      while (System.in.read() >= 0) {
        // The parent process closes this input to end the cluster.
      }
    }
  }
}
