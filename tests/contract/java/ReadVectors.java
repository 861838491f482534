// SPDX-License-Identifier: Apache-2.0

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Scanner;

/**
 * Reads messages of the contract with the classes that the connector ships. Each line of the input is a message's name
 * and its bytes; each line of the output is what Java wrote from what it had read, and how it printed it.
 */
public final class ReadVectors {
  public static void main(String[] arguments) throws Exception {
    Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
    while (lines.hasNextLine()) {
      String[] parts = lines.nextLine().split(" ", -1);
      Class<?> type = Class.forName("io.updraft.proto.v1." + parts[0]);
      byte[] bytes = Base64.getDecoder().decode(parts[1]);
      Object message = type.getMethod("parseFrom", byte[].class).invoke(null, (Object) bytes);
      byte[] written = (byte[]) type.getMethod("toByteArray").invoke(message);
      System.out.println(encoded(written) + " " + encoded(message.toString().getBytes(StandardCharsets.UTF_8)));
    }
  }

  private static String encoded(byte[] bytes) {
    return Base64.getEncoder().encodeToString(bytes);
  }
}
