// SPDX-License-Identifier: Apache-2.0

import java.net.URI;
import java.util.List;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;

/** Calls a function of a pool on texts with flight-core alone: URI of the pool, name of the function, texts. */
public final class CallWords {
  public static void main(String[] arguments) throws Exception {
    List<String> texts = List.of(arguments).subList(2, arguments.length);
    try (BufferAllocator allocator = new RootAllocator();
        FlightClient client = FlightClient.builder(allocator, new Location(new URI(arguments[0]))).build();
        VarCharVector column = new VarCharVector("text", allocator);
        VectorSchemaRoot batch = VectorSchemaRoot.of(column);
        FlightClient.ExchangeReaderWriter call = client.doExchange(FlightDescriptor.path(arguments[1]))) {
      for (int row = 0; row < texts.size(); row++) {
        column.setSafe(row, texts.get(row).getBytes());
      }
      batch.setRowCount(texts.size());
      call.getWriter().start(batch);
      call.getWriter().putNext();
      call.getWriter().completed();
      while (call.getReader().next()) {
        System.out.print(call.getReader().getRoot().contentToTSVString());
      }
    } catch (FlightRuntimeException error) {
      System.out.println(error.status().code() + ": " + error.status().description());
    }
  }
}
