import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Apache BookKeeper's client under the commands of tests/interop/java_client.py: a line in, a line of JSON out.
 *
 * <p>Byte j of an entry's payload is (31 * entry + j) modulo 256, so that whoever reads it knows what it must be.
 */
public final class InteropClient {
  private final BookKeeper client;
  private WriteHandle writer;

  private InteropClient(BookKeeper client) {
    this.client = client;
  }

  public static void main(String[] arguments) throws Exception {
    // What the libraries log goes elsewhere: standard output is for answers.
    PrintStream answers = System.out;
    System.setOut(System.err);
    ClientConfiguration settings = new ClientConfiguration();
    settings.setMetadataServiceUri(arguments[0]);
    settings.setUseV2WireProtocol(arguments[1].equals("v2"));
    settings.setBatchReadEnabled(true);
    settings.setExplictLacInterval(Integer.parseInt(arguments[2]));
    // Further settings by Apache's names, as name=value.
    for (int index = 3; index < arguments.length; index++) {
      String[] parts = arguments[index].split("=", 2);
      settings.setProperty(parts[0], parts[1]);
    }
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    try (BookKeeper client = BookKeeper.newBuilder(settings).build()) {
      InteropClient interop = new InteropClient(client);
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        answers.println(interop.answered(line.trim().split(" ")));
        answers.flush();
      }
    }
  }

  /** An error of BookKeeper's is an answer, too: its code. */
  private String answered(String[] words) {
    try {
      return answer(words);
    } catch (Exception error) {
      Throwable cause = error;
      while (cause.getCause() != null
          && (cause instanceof ExecutionException || cause instanceof CompletionException)) {
        cause = cause.getCause();
      }
      if (cause instanceof BKException) {
        return "{\"code\": " + ((BKException) cause).getCode() + "}";
      }
      error.printStackTrace();
      return "{\"error\": \"" + error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}";
    }
  }

  private String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "create":
        return create(words);
      case "append":
        return append(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
      case "force":
        writer.force().get();
        return "{\"confirmed\": " + writer.getLastAddConfirmed() + "}";
      case "close":
        writer.close();
        return "{}";
      case "open":
        return open(words);
      case "read":
        return read(words);
      case "tail":
        return tail(words);
      case "delete":
        client.newDeleteLedgerOp().withLedgerId(Long.parseLong(words[1])).execute().get();
        return "{}";
      default:
        throw new IllegalArgumentException("no such command: " + words[0]);
    }
  }

  /** create E WQ AQ DIGEST PASSWORD [deferred]. */
  private String create(String[] words) throws Exception {
    CreateBuilder builder =
        client
            .newCreateLedgerOp()
            .withEnsembleSize(Integer.parseInt(words[1]))
            .withWriteQuorumSize(Integer.parseInt(words[2]))
            .withAckQuorumSize(Integer.parseInt(words[3]))
            .withDigestType(DigestType.valueOf(words[4]))
            .withPassword(words[5].getBytes(StandardCharsets.UTF_8));
    if (words.length > 6) {
      builder = builder.withWriteFlags(EnumSet.of(WriteFlag.DEFERRED_SYNC));
    }
    writer = builder.execute().get();
    return "{\"ledger\": " + writer.getId() + "}";
  }

  private String append(int count, int size) throws Exception {
    List<CompletableFuture<Long>> adds = new ArrayList<>();
    long first = writer.getLastAddPushed() + 1;
    for (long entry = first; entry < first + count; entry++) {
      adds.add(writer.appendAsync(payload(entry, size)));
    }
    long last = -1;
    for (CompletableFuture<Long> add : adds) {
      last = add.get();
    }
    return "{\"last\": " + last + ", \"confirmed\": " + writer.getLastAddConfirmed() + "}";
  }

  /** open LEDGER DIGEST PASSWORD RECOVERY. */
  private String open(String[] words) throws Exception {
    try (ReadHandle reader = reader(words, Boolean.parseBoolean(words[4]))) {
      return "{\"last\": " + reader.getLastAddConfirmed() + ", \"length\": " + reader.getLength() + "}";
    }
  }

  /** read LEDGER DIGEST PASSWORD FIRST LAST HOW. */
  private String read(String[] words) throws Exception {
    long first = Long.parseLong(words[4]);
    long last = Long.parseLong(words[5]);
    MessageDigest digest = MessageDigest.getInstance("SHA-1");
    long count = 0;
    try (ReadHandle reader = reader(words, false)) {
      while (count < last - first + 1) {
        long next = first + count;
        try (LedgerEntries entries =
            words[6].equals("batch")
                ? reader.batchRead(next, (int) (last - next + 1), 4 << 20)
                : reader.readUnconfirmed(next, last)) {
          for (LedgerEntry entry : entries) {
            digest.update(entry.getEntryBytes());
            count++;
          }
        }
      }
    }
    StringBuilder hex = new StringBuilder();
    for (byte each : digest.digest()) {
      hex.append(String.format("%02x", each));
    }
    return "{\"count\": " + count + ", \"sha1\": \"" + hex + "\"}";
  }

  /** tail LEDGER DIGEST PASSWORD ENTRY TIMEOUT_MS: waits until an entry is confirmed. */
  private String tail(String[] words) throws Exception {
    long entry = Long.parseLong(words[4]);
    try (ReadHandle reader = reader(words, false);
        LastConfirmedAndEntry news =
            reader.readLastAddConfirmedAndEntryAsync(entry, Long.parseLong(words[5]), false).get()) {
      return "{\"confirmed\": " + news.getLastAddConfirmed() + ", \"has_entry\": " + (news.hasEntry() ? 1 : 0) + "}";
    }
  }

  private ReadHandle reader(String[] words, boolean recovers) throws Exception {
    return client
        .newOpenLedgerOp()
        .withLedgerId(Long.parseLong(words[1]))
        .withDigestType(DigestType.valueOf(words[2]))
        .withPassword(words[3].getBytes(StandardCharsets.UTF_8))
        .withRecovery(recovers)
        .execute()
        .get();
  }

  private static byte[] payload(long entry, int size) {
    byte[] payload = new byte[size];
    for (int at = 0; at < size; at++) {
      payload[at] = (byte) (31 * entry + at);
    }
    return payload;
  }
}
