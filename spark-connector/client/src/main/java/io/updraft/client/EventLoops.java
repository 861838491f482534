// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioDomainSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.util.concurrent.ThreadFactory;

/**
 * The JVM's threads for connections, and the kinds of sockets that go with them: epoll where
 * Netty's native library loads, NIO elsewhere. Daemon threads, started with the first connection
 * that needs one; they live as long as the JVM.
 */
final class EventLoops {
  private static final boolean EPOLL = Epoll.isAvailable();

  /** As many threads as one endpoint may have connections. */
  static final EventLoopGroup GROUP =
      group(ChannelPool.CONNECTIONS, new DefaultThreadFactory("updraft-io", true));

  private EventLoops() {}

  // What replaces these two in Netty 4.2 is not in 4.1, which Spark 4.0 brings.
  @SuppressWarnings("deprecation")
  private static EventLoopGroup group(int threads, ThreadFactory factory) {
    return EPOLL
        ? new EpollEventLoopGroup(threads, factory)
        : new NioEventLoopGroup(threads, factory);
  }

  static Class<? extends Channel> tcpChannel() {
    return EPOLL ? EpollSocketChannel.class : NioSocketChannel.class;
  }

  static Class<? extends Channel> unixChannel() {
    return EPOLL ? EpollDomainSocketChannel.class : NioDomainSocketChannel.class;
  }

  static SocketAddress unixAddress(String path) {
    return EPOLL ? new DomainSocketAddress(path) : UnixDomainSocketAddress.of(path);
  }
}
