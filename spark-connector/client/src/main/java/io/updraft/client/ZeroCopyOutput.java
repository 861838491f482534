// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.internal.MessageFramer;
import io.grpc.netty.NettyChannelBuilder;
import io.netty.buffer.ByteBuf;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Arrays;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Output that hands a Netty buffer to gRPC's framer without copying it.
 *
 * <p>gRPC passes a message that encodes itself only an {@link OutputStream}, which copies what is
 * written. This class instead appends our buffer to the stream's internal list of buffers. For that
 * it uses two private names of the bundled gRPC. If a release renames them, the bytes are copied
 * instead, and a test fails.
 */
final class ZeroCopyOutput {
  private static final Logger LOG = LoggerFactory.getLogger(ZeroCopyOutput.class);
  private static final Handles HANDLES = findHandles();

  private record Handles(Class<?> streamClass, MethodHandle buffersOf, MethodHandle wrap) {}

  private ZeroCopyOutput() {}

  /** Return whether this gRPC version accepts our buffers without a copy. */
  static boolean available() {
    return HANDLES != null;
  }

  /**
   * Write all of a buffer to the stream and release the caller's reference, either immediately or
   * after the transport has sent the buffer.
   *
   * @return the number of bytes written
   */
  static int write(ByteBuf buffer, OutputStream stream) throws IOException {
    int length = buffer.readableBytes();
    if (HANDLES == null || !HANDLES.streamClass.isInstance(stream)) {
      try {
        buffer.readBytes(stream, length);
      } finally {
        buffer.release();
      }
      return length;
    }
    append(buffer, stream);
    return length;
  }

  @SuppressWarnings("unchecked")
  private static void append(ByteBuf buffer, OutputStream stream) throws IOException {
    try {
      ((List<Object>) HANDLES.buffersOf.invoke(stream)).add(HANDLES.wrap.invoke(buffer));
    } catch (Throwable e) {
      buffer.release();
      throw new IOException("gRPC's framer refused a buffer", e);
    }
  }

  private static Handles findHandles() {
    try {
      Class<?> stream =
          Arrays.stream(MessageFramer.class.getDeclaredClasses())
              .filter(type -> type.getSimpleName().equals("BufferChainOutputStream"))
              .findAny()
              .orElseThrow(ClassNotFoundException::new);
      // The package name is looked up at run time because the bundle relocates it.
      Class<?> wrapper =
          Class.forName(NettyChannelBuilder.class.getPackageName() + ".NettyWritableBuffer");
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      return new Handles(
          stream,
          MethodHandles.privateLookupIn(stream, lookup)
              .findGetter(stream, "bufferList", List.class),
          MethodHandles.privateLookupIn(wrapper, lookup)
              .findConstructor(wrapper, MethodType.methodType(void.class, ByteBuf.class)));
    } catch (ReflectiveOperationException | RuntimeException e) {
      LOG.warn("this version of gRPC copies every buffer: exchanges cost more CPU", e);
      return null;
    }
  }
}
