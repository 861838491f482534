// SPDX-License-Identifier: Apache-2.0

import java.net.URI;
import org.apache.arrow.flight.AsyncPutListener;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;

/** Calls a registered function by name with flight-core alone: arguments are the pool's URI and the function's name. */
public final class EchoClient {
  private static final int ROWS = 5;
  private static final int BATCHES = 3;

  public static void main(String[] arguments) throws Exception {
    try (BufferAllocator allocator = new RootAllocator();
        FlightClient client = FlightClient.builder(allocator, new Location(new URI(arguments[0]))).build()) {
      try {
        exchange(allocator, client, FlightDescriptor.path(arguments[1]));
      } catch (FlightRuntimeException error) {
        System.out.println(error.status().code() + ": " + error.status().description());
      }
    }
  }

  private static void exchange(BufferAllocator allocator, FlightClient client, FlightDescriptor function)
      throws Exception {
    try (BigIntVector numbers = new BigIntVector("n", allocator);
        VarCharVector texts = new VarCharVector("t", allocator);
        VectorSchemaRoot request = VectorSchemaRoot.of(numbers, texts);
        FlightClient.ExchangeReaderWriter call = client.doExchange(function)) {
      call.getWriter().start(request);
      for (int batch = 0; batch < BATCHES; batch++) {
        fill(numbers, texts, batch);
        request.setRowCount(ROWS);
        call.getWriter().putNext();
      }
      call.getWriter().completed();
      while (call.getReader().next()) {
        System.out.print(call.getReader().getRoot().contentToTSVString());
      }
    }
  }

  private static void fill(BigIntVector numbers, VarCharVector texts, int batch) {
    for (int row = 0; row < ROWS; row++) {
      numbers.setSafe(row, batch * ROWS + row);
      if (row == 2) {
        texts.setNull(row);
      } else {
        texts.setSafe(row, ("row " + row).getBytes());
      }
    }
  }
}
