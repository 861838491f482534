// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.sun.security.auth.module.UnixSystem;
import io.updraft.proto.v1.SegmentRange;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.regex.Pattern;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Memory that one call shares with a pool on the same node: one ring buffer for bodies of requests
 * and one for bodies of replies (proto/README.md, "Segments"). While a ring is full, bodies travel
 * in their messages.
 *
 * <p>Thread-safe.
 */
final class Segment implements AutoCloseable {
  /** Smallest body that uses the segment. A smaller body is cheaper to send in its message. */
  static final int LEAST_BODY_BYTES = 64 << 10;

  private static final Logger LOG = LoggerFactory.getLogger(Segment.class);
  private static final int CONTROL_BYTES = 4096;
  private static final long MOST_RING_BYTES = 1 << 29;
  private static final Pattern NAME = Pattern.compile("updraft-segment-[0-9a-f]{32}");
  private static final int READ_POSITION = 0;
  private static final int OPENED = 8;
  private static final VarHandle NUMBER =
      MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  /** Name of the segment directory of a pool that clients call at a loopback address. */
  private static final Pattern LOOPBACK_DIRECTORY =
      Pattern.compile("/dev/shm/updraft-segments-[0-9a-f]{32}");

  /** Endpoints whose segments this process cannot use, such as a pool that runs as another user. */
  private static final Set<Endpoint> CLOSED = ConcurrentHashMap.newKeySet();

  /** Request batch in the ring. Its range stays in use until the function has taken the batch. */
  private record Placed(long sequence, long end) {}

  private final MappedByteBuffer memory;
  private final int ringBytes;
  private final LongAdder passedBytes;
  private final Deque<Placed> placed = new ArrayDeque<>();
  private long written;
  private long freed;
  private boolean closed;

  private Segment(MappedByteBuffer memory, int ringBytes, LongAdder passedBytes) {
    this.memory = memory;
    this.ringBytes = ringBytes;
    this.passedBytes = passedBytes;
    NUMBER.setRelease(memory, OPENED, 1L);
  }

  /** Return whether a client should ask the pool at this endpoint for a segment. */
  static boolean areUsable(Endpoint endpoint) {
    return endpoint.mayShareMemory() && !CLOSED.contains(endpoint);
  }

  /**
   * Map the segment that a pool offers. If the file cannot be mapped, return null and never ask
   * this endpoint for a segment again. The pool uses a segment only after its client has mapped it.
   */
  static Segment ofOffer(
      Endpoint endpoint, ReplyEvent.SegmentOffered offered, LongAdder passedBytes) {
    try {
      if (endpoint.transport() != Endpoint.Transport.UNIX) {
        checkOwner(offered.directory());
      }
      return open(offered.directory(), offered.offer(), passedBytes);
    } catch (IOException | RuntimeException e) {
      if (CLOSED.add(endpoint)) {
        LOG.info("cannot share memory with the pool at {}: {}", endpoint, e.toString());
      }
      return null;
    }
  }

  /**
   * Map a segment.
   *
   * @param directory directory named by the pool's front; functions cannot create files in it
   * @param passedBytes counter of the bytes that pass through the segment
   * @throws IOException if this process cannot use the file, or the file is not a segment
   */
  static Segment open(String directory, io.updraft.proto.v1.Segment offer, LongAdder passedBytes)
      throws IOException {
    Path path = Path.of(directory, offer.getName());
    long ringBytes = offer.getRingBytes();
    boolean fits = ringBytes > 0 && ringBytes <= MOST_RING_BYTES;
    // The client writes to this file, so the pool must not be able to name an arbitrary file.
    if (!fits || !path.isAbsolute() || !NAME.matcher(offer.getName()).matches()) {
      throw new IOException("not a segment: " + path + " with rings of " + ringBytes + " bytes");
    }
    long sizeBytes = CONTROL_BYTES + 2 * ringBytes;
    var options =
        Set.of(StandardOpenOption.READ, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
    try (FileChannel file = FileChannel.open(path, options)) {
      if (file.size() != sizeBytes) {
        throw new IOException(path + " has " + file.size() + " bytes, not " + sizeBytes);
      }
      return new Segment(
          file.map(FileChannel.MapMode.READ_WRITE, 0, sizeBytes), (int) ringBytes, passedBytes);
    }
  }

  /**
   * Check that only this process's user can change the files of a directory. Another user of the
   * machine could listen on the port and offer a file of their own. If that user truncated the
   * file, the kernel could kill this process at its next write to the mapped memory.
   */
  private static void checkOwner(String directory) throws IOException {
    Object owner = Files.getAttribute(Path.of(directory), "unix:uid", LinkOption.NOFOLLOW_LINKS);
    long user = new UnixSystem().getUid();
    if (!LOOPBACK_DIRECTORY.matcher(directory).matches() || !owner.equals((int) user)) {
      throw new IOException(directory + " is not this user's directory for segments");
    }
  }

  /**
   * Copy a batch's body into the segment.
   *
   * @param sequence number of the batch in its call
   * @return the body's place; null if the ring has no room for it, or the batch was closed
   */
  synchronized SegmentRange place(RequestBatch batch, long sequence) {
    long sizeBytes = batch.bodyBytes();
    if (closed || sizeBytes < LEAST_BODY_BYTES || sizeBytes > ringBytes) {
      return null;
    }
    long behind = ringBytes - written % ringBytes;
    long position = sizeBytes <= behind ? written : written + behind;
    if (!placed.isEmpty() && position + sizeBytes - freed > ringBytes) {
      return null;
    }
    if (!batch.copyTo(memory, CONTROL_BYTES + (int) (position % ringBytes))) {
      return null;
    }
    written = position + sizeBytes;
    passedBytes.add(sizeBytes);
    placed.add(new Placed(sequence, written));
    return SegmentRange.newBuilder().setPosition(position).setSizeBytes(sizeBytes).build();
  }

  /** Free the ranges of all requests up to this number. */
  synchronized void consumed(long sequence) {
    while (!placed.isEmpty() && placed.peek().sequence() <= sequence) {
      freed = placed.remove().end();
    }
  }

  /** Return a copy of a reply's body and free its range. The caller closes the copy. */
  synchronized ArrowBuf take(SegmentRange range, BufferAllocator allocator)
      throws MalformedReplyException {
    long position = range.getPosition();
    long sizeBytes = range.getSizeBytes();
    boolean inside =
        !closed
            && position >= 0
            && sizeBytes > 0
            && sizeBytes <= ringBytes
            && position % ringBytes + sizeBytes <= ringBytes
            && position <= Long.MAX_VALUE - sizeBytes;
    if (!inside) {
      throw new MalformedReplyException(
          "a body of %d bytes at position %d is not inside a ring of %d bytes"
              .formatted(sizeBytes, position, ringBytes));
    }
    ArrowBuf body = allocator.buffer(sizeBytes);
    int offset = CONTROL_BYTES + ringBytes + (int) (position % ringBytes);
    body.setBytes(0, memory.slice(offset, (int) sizeBytes));
    body.writerIndex(sizeBytes);
    NUMBER.setRelease(memory, READ_POSITION, position + sizeBytes);
    passedBytes.add(sizeBytes);
    return body;
  }

  @Override
  public synchronized void close() {
    if (!closed) {
      closed = true;
      Unmapping.unmap(memory);
    }
  }
}
