// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;

/**
 * Immediate unmapping of mapped files. Before Java 22, only the garbage collector unmaps a file, so
 * the memory of a removed file stays in use until a collection.
 */
final class Unmapping {
  private static final MethodHandle CLEANER = findCleaner();

  private Unmapping() {}

  /** Unmap a file. Nothing may use the buffer, or a view of it, afterwards. */
  static void unmap(MappedByteBuffer buffer) {
    if (CLEANER == null) {
      return;
    }
    try {
      CLEANER.invoke(buffer);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException("cannot unmap a file", e);
    }
  }

  private static MethodHandle findCleaner() {
    try {
      Class<?> unsafe = Class.forName("sun.misc.Unsafe");
      Field field = unsafe.getDeclaredField("theUnsafe");
      field.setAccessible(true);
      MethodType type = MethodType.methodType(void.class, ByteBuffer.class);
      return MethodHandles.lookup()
          .findVirtual(unsafe, "invokeCleaner", type)
          .bindTo(field.get(null));
    } catch (ReflectiveOperationException | RuntimeException e) {
      return null;
    }
  }
}
