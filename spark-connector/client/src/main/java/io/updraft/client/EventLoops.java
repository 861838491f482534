// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.util.concurrent.DefaultThreadFactory;
import io.netty.util.concurrent.EventExecutor;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.util.concurrent.ThreadFactory;

/**
 * Event loop threads for all connections of this JVM, and the matching socket types: epoll if
 * Netty's native library loads, NIO otherwise. The threads are daemons. Each thread starts with the
 * first connection that needs it and runs until the JVM exits.
 */
final class EventLoops {
  private static final boolean EPOLL = Epoll.isAvailable();

  private static final int CORES_PER_THREAD = 4;

  /**
   * Number of threads, and of connections to one endpoint: more connections than threads would not
   * help.
   */
  static final int THREADS =
      Math.max(1, Math.min(8, Runtime.getRuntime().availableProcessors() / CORES_PER_THREAD));

  static final EventLoopGroup GROUP = group(new DefaultThreadFactory("updraft-io", true));

  /**
   * Event loop for all timers, such as the checks for silent calls. The group assigns its loops to
   * callers in turn. If each timer requested a loop, connections would no longer be spread evenly
   * over the threads.
   */
  static final EventExecutor TIMER = GROUP.iterator().next();

  private EventLoops() {}

  // Netty 4.2 deprecates these two classes, but their replacements do not exist in Netty 4.1, which
  // Spark 4.0 ships.
  @SuppressWarnings("deprecation")
  private static EventLoopGroup group(ThreadFactory factory) {
    return EPOLL
        ? new EpollEventLoopGroup(THREADS, factory)
        : new NioEventLoopGroup(THREADS, factory);
  }

  static Class<? extends Channel> tcpChannel() {
    return EPOLL ? EpollSocketChannel.class : NioSocketChannel.class;
  }

  static Class<? extends Channel> unixChannel() {
    return EPOLL ? EpollDomainSocketChannel.class : nioUnixChannel();
  }

  // Looked up by name, because Netty 4.1.96, which Spark 3.5 ships, does not have this class.
  private static Class<? extends Channel> nioUnixChannel() {
    try {
      return Class.forName("io.netty.channel.socket.nio.NioDomainSocketChannel")
          .asSubclass(Channel.class);
    } catch (ClassNotFoundException e) {
      throw new UnsupportedOperationException(
          "cannot connect to a Unix socket: Spark's Netty supports it only with epoll, which is not"
              + " available here; use an endpoint with grpc://",
          e);
    }
  }

  static SocketAddress unixAddress(String path) {
    return EPOLL ? new DomainSocketAddress(path) : UnixDomainSocketAddress.of(path);
  }
}
