// SPDX-License-Identifier: Apache-2.0

import io.updraft.client.Artifact;
import io.updraft.client.BatchGroups;
import io.updraft.client.ClientOptions;
import io.updraft.client.Endpoint;
import io.updraft.client.Exchange;
import io.updraft.client.Peer;
import io.updraft.client.Replay;
import io.updraft.client.Reply;
import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.shaded.protobuf.ByteString;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Scanner;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;

/**
 * Runs one exchange with the client that the connector ships. The argument is the pool's address; a line of the input is
 *
 * <pre>
 *   command BYTES               what to run
 *   artifact DIGEST PATH        an artifact that the command lists
 *   batch INPUT ENDS STREAM     a batch as an Arrow stream of its own, and the groups that end in it
 * </pre>
 *
 * and a line of the output is the row ends of a reply and its batch, likewise.
 */
public final class SessionClient {
  private static final int FIELDS = 4;

  private final List<Artifact> artifacts = new ArrayList<>();
  private final BufferAllocator allocator = new RootAllocator();
  private final Endpoint endpoint;
  private ExchangeCommand command;
  private Exchange exchange;

  private SessionClient(Endpoint endpoint) {
    this.endpoint = endpoint;
  }

  public static void main(String[] arguments) throws Exception {
    SessionClient client = new SessionClient(Endpoint.parse(arguments[0]));
    Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
    while (lines.hasNextLine()) {
      client.obey(lines.nextLine().split(" ", FIELDS));
    }
    client.finish();
  }

  private void obey(String[] order) throws IOException {
    switch (order[0]) {
      case "command" -> command = ExchangeCommand.parseFrom(Base64.getDecoder().decode(order[1]));
      case "artifact" -> artifacts.add(new FileArtifact(order[1], Path.of(order[2])));
      case "batch" -> send(order[3], new BatchGroups(ends(order[2]), Integer.parseInt(order[1])));
      default -> throw new IllegalArgumentException(order[0]);
    }
  }

  private static int[] ends(String text) {
    return Arrays.stream(text.split(",")).filter(end -> !end.isEmpty()).mapToInt(Integer::parseInt).toArray();
  }

  private void send(String stream, BatchGroups groups) throws IOException {
    InputStream bytes = new ByteArrayInputStream(Base64.getDecoder().decode(stream));
    try (ArrowStreamReader reader = new ArrowStreamReader(bytes, allocator)) {
      reader.loadNextBatch();
      VectorSchemaRoot root = reader.getVectorSchemaRoot();
      if (exchange == null) {
        ClientOptions options = ClientOptions.of(Peer.POOL, endpoint);
        exchange = Exchange.open(options, command, root.getSchema(), allocator, Replay.NEVER, artifacts);
      }
      exchange.send(new VectorUnloader(root).getRecordBatch(), root.getRowCount(), groups);
    }
  }

  private void finish() throws Exception {
    try (Exchange open = exchange) {
      open.finishSending();
      for (Reply reply = open.take(); reply.kind() != Reply.Kind.END; reply = open.take()) {
        if (reply.kind() == Reply.Kind.BATCH) {
          print(reply);
        }
      }
    }
  }

  private void print(Reply reply) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (VectorSchemaRoot root = VectorSchemaRoot.create(exchange.resultSchema(), allocator);
        ArrowStreamWriter writer = new ArrowStreamWriter(root, null, bytes)) {
      new VectorLoader(root).load(reply.batch());
      reply.batch().close();
      writer.writeBatch();
    }
    String ends = Arrays.stream(reply.rowEnds()).mapToObj(Integer::toString).reduce((a, b) -> a + "," + b).orElse("");
    System.out.println(ends + " " + Base64.getEncoder().encodeToString(bytes.toByteArray()));
  }

  private record FileArtifact(String digest, Path path) implements Artifact {
    @Override
    public ByteString sha256() {
      return ByteString.copyFrom(HexFormat.of().parseHex(digest));
    }

    @Override
    public long sizeBytes() {
      try {
        return Files.size(path);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    @Override
    public InputStream open() throws IOException {
      return Files.newInputStream(path);
    }
  }
}
