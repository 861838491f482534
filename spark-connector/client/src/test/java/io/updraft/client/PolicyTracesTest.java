// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.updraft.proto.v1.Admitted;
import io.updraft.proto.v1.ArtifactsWanted;
import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.Finish;
import io.updraft.proto.v1.PayloadWanted;
import io.updraft.proto.v1.ReplyMetadata;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/**
 * Comparison of the simulator's models of this policy (tests/simulation/client) with these classes.
 * Each line of the traces has an event and, after a tab, the model's decision.
 */
class PolicyTracesTest {
  private static final ClientOptions OPTIONS =
      ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:9"));

  /** Policy that handles the events of one trace. */
  @FunctionalInterface
  private interface Policy {
    /** Handle an event, and check the decision or return it. */
    String handle(String[] event, String decided) throws Exception;
  }

  @Test
  @DisplayName("every decision in the traces is that of the client's classes")
  void repeats() throws Exception {
    Set<String> classes = new HashSet<>();
    Policy policy = null;
    int number = 0;
    try (BufferedReader lines = traces()) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        number++;
        int tab = line.indexOf('\t');
        String[] event = line.substring(0, tab).split(" ");
        String decided = line.substring(tab + 1);
        if (event[0].equals("new")) {
          classes.add(event[1]);
          policy = policy(event);
        } else {
          String where = "line " + number + ": " + line;
          assertEquals(decided, policy.handle(event, decided), where);
        }
      }
    }
    assertEquals(7, classes.size());
    assertTrue(number > 1000);
  }

  private static BufferedReader traces() throws IOException {
    var stream = PolicyTracesTest.class.getResourceAsStream("/policy-traces.txt");
    return new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8));
  }

  private static Policy policy(String[] made) {
    return switch (made[1]) {
      case "RetryBudget" -> retryBudget(new RetryBudget());
      case "Circuit" -> circuit(new Circuit((least, most) -> (least + most) / 2));
      case "Replicas" -> replicas();
      case "Recovery" -> recovery(made);
      case "RequestLog" ->
          requestLog(
              new RequestLog(
                  Integer.parseInt(made[2]),
                  Long.parseLong(made[3]),
                  Long.parseLong(made[4]),
                  Replay.valueOf(made[5])));
      case "ReplyProtocol" -> replyProtocol(new ReplyProtocol(OPTIONS, range -> null));
      case "CreditWindow" -> creditWindow(Long.parseLong(made[2]));
      default -> throw new AssertionError(made[1]);
    };
  }

  private static Policy retryBudget(RetryBudget budget) {
    return (event, decided) -> "" + budget.takeNanos(Long.parseLong(event[1]));
  }

  private static Policy circuit(Circuit circuit) {
    return (event, decided) -> {
      if (event[0].equals("connected")) {
        circuit.connected();
        return "" + circuit.isOpen();
      }
      return circuit.mayAttempt(Long.parseLong(event[1])) + " " + circuit.isOpen();
    };
  }

  private static Policy replicas() {
    AtomicLong uses = new AtomicLong();
    Replicas replicas = new Replicas(uses::decrementAndGet);
    List<Replicas.Place> places = new ArrayList<>();
    return (event, decided) -> {
      switch (event[0]) {
        case "release" -> places.remove(Integer.parseInt(event[1])).release();
        case "ended" -> places.get(Integer.parseInt(event[1])).ended();
        case "left" ->
            places
                .get(Integer.parseInt(event[1]))
                .recordDeparture(Replicas.Departure.valueOf(event[2]), Long.parseLong(event[3]));
        default -> {
          List<InetAddress> addresses =
              Stream.of(event[1].split(",")).map(PolicyTracesTest::pod).toList();
          String task = event[2].equals("-") ? null : event[2];
          Replicas.Place place = replicas.choose(addresses, task, Long.parseLong(event[3]));
          places.add(place);
          return place.address().getAddress()[3] + " " + place.hasAlternatives();
        }
      }
      return "";
    };
  }

  private static InetAddress pod(String number) {
    try {
      return InetAddress.getByAddress(new byte[] {10, 0, 0, Byte.parseByte(number)});
    } catch (UnknownHostException e) {
      throw new AssertionError(e);
    }
  }

  private static Policy recovery(String[] made) {
    ClientOptions options =
        OPTIONS.changed(
            o -> {
              o.acquireTimeout = Duration.ofMillis(Long.parseLong(made[2]));
              o.connectTimeout = Duration.ofMillis(Long.parseLong(made[3]));
              o.maxReplays = Integer.parseInt(made[4]);
            });
    Recovery recovery = new Recovery(options, new RetryBudget(), Long.parseLong(made[5]));
    return (event, decided) -> {
      switch (event[0]) {
        case "progressed" -> recovery.progressed();
        case "waited" -> recovery.waited(Long.parseLong(event[1]));
        case "elsewhere" -> {
          return "" + recovery.mayTryElsewhere();
        }
        default -> {
          Recovery.Decision decision =
              recovery.decide(
                  failure(event), progress(event), hint(event), Long.parseLong(event[12]));
          return decision instanceof Recovery.Decision.Again again
              ? within(again.pause().toMillis(), decided)
              : decision instanceof Recovery.Decision.GiveUp ? "give up" : "another token";
        }
      }
      return "";
    };
  }

  /** Return the decided range if the pause, which is random, lies in it. */
  private static String within(long pause, String decided) {
    String[] words = decided.split(" ");
    boolean fits =
        words[0].equals("again")
            && Long.parseLong(words[1]) <= pause
            && pause <= Long.parseLong(words[2]);
    return fits ? decided : "again " + pause;
  }

  private static Failure failure(String[] event) {
    ErrorKind kind = ErrorKind.valueOf("ERROR_KIND_" + event[1]);
    boolean inBand = Boolean.parseBoolean(event[3]);
    Error details =
        inBand
            ? Error.newBuilder().setKind(kind).setSequence(Long.parseLong(event[4])).build()
            : null;
    Throwable cause = Boolean.parseBoolean(event[5]) ? new ConnectException("refused") : null;
    Failure.Origin origin = Failure.Origin.valueOf(event[2]);
    return new Failure(kind, Failure.codeOf(kind).name(), "it failed", details, cause, origin);
  }

  private static Recovery.Progress progress(String[] event) {
    return new Recovery.Progress(
        Boolean.parseBoolean(event[6]),
        Long.parseLong(event[7]),
        Long.parseLong(event[8]),
        Boolean.parseBoolean(event[9]),
        Recovery.Reachability.valueOf(event[10]));
  }

  private static OptionalLong hint(String[] event) {
    return event[11].equals("-")
        ? OptionalLong.empty()
        : OptionalLong.of(Long.parseLong(event[11]));
  }

  private static RequestBatch batch(String rows) {
    return new RequestBatch(SingleBatch.unowned(Integer.parseInt(rows)), BatchGroups.NONE);
  }

  private static Policy requestLog(RequestLog log) {
    return (event, decided) -> {
      String outcome = "";
      switch (event[0]) {
        case "add" -> log.add(batch(event[1]));
        case "transmit" -> log.transmit();
        case "consumed" -> log.consumedThrough(Long.parseLong(event[1]));
        case "answered" -> outcome = malformed(() -> log.answeredNext(Integer.parseInt(event[1])));
        case "result" -> log.resultTaken();
        default -> log.restart();
      }
      RequestBatch waiting = log.untransmitted();
      return "%s%d %d %d %b %d %b %s"
          .formatted(
              outcome,
              log.sent(),
              log.transmitted(),
              log.answered(),
              log.replayable(),
              log.forgottenBytes(),
              log.hasRoom(),
              waiting == null ? "-" : waiting.rows());
    };
  }

  /** Step that may find that the pool broke the protocol. */
  @FunctionalInterface
  private interface Checked {
    void run() throws MalformedReplyException;
  }

  private static String malformed(Checked step) {
    try {
      step.run();
    } catch (MalformedReplyException e) {
      return "malformed ";
    }
    return "";
  }

  private static Policy replyProtocol(ReplyProtocol protocol) {
    return (event, decided) -> {
      String outcome = malformed(() -> accept(protocol, event));
      return outcome + protocol.state() + " " + protocol.consumed();
    };
  }

  private static void accept(ReplyProtocol protocol, String[] event)
      throws MalformedReplyException {
    long sequence = Long.parseLong(event[1]);
    int rows = Integer.parseInt(event[2]);
    ReplyMetadata.Builder metadata =
        ReplyMetadata.newBuilder().setConsumed(Long.parseLong(event[3]));
    byte[] header = {};
    int bodyBytes = 0;
    switch (event[0]) {
      case "WANTED" -> metadata.setPayloadWanted(PayloadWanted.getDefaultInstance());
      case "PROVIDED" -> metadata.setArtifactsWanted(ArtifactsWanted.getDefaultInstance());
      case "ADMITTED" -> metadata.setAdmitted(Admitted.getDefaultInstance());
      case "SCHEMA" ->
          header =
              RequestBatch.bytes(
                  MessageSerializer.serializeMetadata(Batches.SCHEMA, IpcOption.DEFAULT));
      case "BATCH" -> {
        metadata.setSequence(sequence);
        header = Batches.header(rows);
        bodyBytes = 8 * rows;
      }
      case "FINISHED" -> metadata.setFinish(Finish.newBuilder().setBatches(sequence).setRows(rows));
      case "FAILED" -> metadata.setError(Error.getDefaultInstance());
      default -> {}
    }
    try (RootAllocator root = new RootAllocator()) {
      ArrowBuf body = bodyBytes == 0 ? null : root.buffer(bodyBytes);
      if (body != null) {
        body.setZero(0, bodyBytes).writerIndex(bodyBytes);
      }
      byte[] appMetadata = metadata.build().toByteArray();
      try (IncomingMessage message = new IncomingMessage(header, appMetadata, body, 0)) {
        protocol.accept(message).drop();
      }
    }
  }

  private static Policy creditWindow(long windowBytes) {
    CreditWindow window = new CreditWindow(OPTIONS.changed(o -> o.windowBytes = windowBytes));
    return (event, decided) -> {
      String outcome = "";
      switch (event[0]) {
        case "add" -> {
          outcome = window.hasRoom(8L * Integer.parseInt(event[1])) + " ";
          window.add(batch(event[1]));
        }
        case "ask" -> {
          var ask = window.nextAsk();
          outcome = (ask == null ? "-" : ask.getBodyBytes()) + " ";
        }
        case "send" -> outcome = window.send().batch().rows() + " ";
        case "credit" -> outcome = malformed(() -> window.takeCredit(Long.parseLong(event[1])));
        case "stored" -> outcome = malformed(() -> window.takeStored(Long.parseLong(event[1])));
        default -> window.restart();
      }
      return "%s%d %d %b %b %b"
          .formatted(
              outcome,
              window.sent(),
              window.sentRows(),
              window.hasCredit(),
              window.isEmpty(),
              window.isStored());
    };
  }
}
