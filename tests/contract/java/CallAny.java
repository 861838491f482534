// SPDX-License-Identifier: Apache-2.0

import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;

/**
 * Calls functions of a pool with flight-core alone: the only argument is the URI of the pool.
 *
 * <p>Each line of input is a call: name of the function, file of its arguments and file for its results, both Arrow IPC
 * streams, separated by tabs. Each call is answered by one line: OK, or the code and the description of its error.
 */
public final class CallAny {
  public static void main(String[] arguments) throws Exception {
    BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (BufferAllocator allocator = new RootAllocator();
        FlightClient client = FlightClient.builder(allocator, new Location(new URI(arguments[0]))).build()) {
      for (String line = calls.readLine(); line != null; line = calls.readLine()) {
        String[] call = line.split("\t");
        System.out.println(answer(allocator, client, call[0], Path.of(call[1]), Path.of(call[2])));
      }
    }
  }

  private static String answer(BufferAllocator allocator, FlightClient client, String name, Path given, Path results)
      throws Exception {
    try (InputStream input = Files.newInputStream(given);
        ArrowStreamReader batches = new ArrowStreamReader(input, allocator);
        FlightClient.ExchangeReaderWriter call = client.doExchange(FlightDescriptor.path(name))) {
      call.getWriter().start(batches.getVectorSchemaRoot());
      while (batches.loadNextBatch()) {
        call.getWriter().putNext();
      }
      call.getWriter().completed();
      write(call.getReader(), results);
      return "OK";
    } catch (FlightRuntimeException error) {
      return error.status().code() + ": " + error.status().description().replace("\n", "\\n");
    }
  }

  private static void write(FlightStream answer, Path results) throws Exception {
    try (OutputStream output = Files.newOutputStream(results);
        ArrowStreamWriter writer = new ArrowStreamWriter(answer.getRoot(), answer.getDictionaryProvider(), output)) {
      while (answer.next()) {
        writer.writeBatch();
      }
      writer.end();
    }
  }
}
