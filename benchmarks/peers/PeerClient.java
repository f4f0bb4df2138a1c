import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Apache BookKeeper's client under the commands of benchmarks/peers/commands.py: a line in, a line of JSON out.
 *
 * <p>It does what benchmarks/peers/ours.py does with our client, through the public API only; whoever changes
 * what is measured in one changes it in the other.
 */
public final class PeerClient {
  private static final byte[] PASSWORD = new byte[0];
  private static final int RANGES_IN_FLIGHT = 4;
  private static final int RANGE_BYTES = 1 << 20;
  private static final long BATCH_BYTES_MAX = 4L << 20;
  private static final int PACED_STEP = 10;
  private static final int SMALL = 100;

  private final BookKeeper client;
  private final List<Long> ledgers = new ArrayList<>();
  private final Random random = new Random(1);

  private PeerClient(BookKeeper client) {
    this.client = client;
  }

  public static void main(String[] arguments) throws Exception {
    // What the libraries log goes elsewhere: standard output is for answers.
    PrintStream answers = System.out;
    System.setOut(System.err);
    ClientConfiguration settings = new ClientConfiguration();
    settings.setMetadataServiceUri(arguments[0]);
    settings.setUseV2WireProtocol(true);
    settings.setBatchReadEnabled(true);
    // By default 5,000 adds and reads a second, whatever the bookies can do.
    settings.setThrottleValue(0);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    try (BookKeeper client = BookKeeper.newBuilder(settings).build()) {
      PeerClient peer = new PeerClient(client);
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String answer;
        try {
          answer = peer.answer(line.trim().split(" "));
        } catch (Exception error) {
          error.printStackTrace();
          answer = "{\"error\": \"" + error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}";
        }
        answers.println(answer);
        answers.flush();
      }
    }
  }

  private String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "add":
        return add(number(words[2]), number(words[3]), seconds(words[4]), number(words[5]));
      case "paced":
        return paced(number(words[1]), number(words[2]), seconds(words[3]));
      case "prepare":
        return prepare(number(words[1]), number(words[2]));
      case "read":
        return read(words[1], number(words[2]), Long.parseLong(words[3]), seconds(words[4]));
      case "recover":
        return recover(number(words[1]), number(words[2]), seconds(words[3]));
      case "life":
        return life(seconds(words[1]));
      case "forget":
        return forget();
      default:
        throw new IllegalArgumentException("no such command: " + words[0]);
    }
  }

  private String add(int size, int window, long lengthNs, int every) throws Exception {
    WriteHandle writer = create();
    byte[] payload = payload(size);
    Adds adds = new Adds(window);
    long began = System.nanoTime();
    long count = 0;
    for (long now = began; now - began < lengthNs; ) {
      adds.slots.acquire();
      boolean isSampled = count % every == 0;
      if (isSampled) {
        now = System.nanoTime();
      }
      adds.follow(writer.appendAsync(payload), isSampled ? now : 0);
      count++;
    }
    adds.finish();
    long taken = System.nanoTime() - began;
    writer.close();
    return figures(count, count * size, taken, adds.latencies);
  }

  /** Latencies count from when an add was due: a client that falls behind cannot hide it. */
  private String paced(int size, int perSecond, long lengthNs) throws Exception {
    WriteHandle writer = create();
    byte[] payload = payload(size);
    Adds adds = new Adds(Integer.MAX_VALUE);
    long stepNs = 1_000_000_000L * PACED_STEP / perSecond;
    long steps = lengthNs / stepNs;
    long began = System.nanoTime();
    for (long step = 1; step <= steps; step++) {
      long due = began + step * stepNs;
      for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
        LockSupport.parkNanos(left);
      }
      for (int index = 0; index < PACED_STEP; index++) {
        adds.slots.acquire();
        adds.follow(writer.appendAsync(payload), due);
      }
    }
    adds.finish();
    long taken = System.nanoTime() - began;
    writer.close();
    return figures(steps * PACED_STEP, steps * PACED_STEP * size, taken, adds.latencies);
  }

  private String prepare(int size, int count) throws Exception {
    WriteHandle writer = create();
    append(writer, size, count, Math.max(4, Math.min(1_000, (16 << 20) / size))).finish();
    writer.close();
    return "{\"ledger\": " + writer.getId() + "}";
  }

  private String read(String how, int size, long ledger, long lengthNs) throws Exception {
    try (ReadHandle reader = open(ledger, false)) {
      ArrayDeque<CompletableFuture<Integer>> ahead = new ArrayDeque<>();
      long end = reader.getLastAddConfirmed();
      int range = Math.max(1, RANGE_BYTES / size);
      long began = System.nanoTime();
      long count = 0;
      long next = 0;
      while (true) {
        while (ahead.size() < RANGES_IN_FLIGHT && System.nanoTime() - began < lengthNs) {
          long last = Math.min(end, next + range - 1);
          ahead.add(how.equals("batch") ? batch(reader, next, last) : entries(reader, next, last));
          next = last == end ? 0 : last + 1;
        }
        if (ahead.isEmpty()) {
          break;
        }
        count += ahead.poll().get();
      }
      return figures(count, count * size, System.nanoTime() - began, new Latencies());
    }
  }

  private static CompletableFuture<Integer> entries(ReadHandle reader, long first, long last) {
    return reader.readAsync(first, last).thenApply(PeerClient::consume);
  }

  /** A reply may end early; what is left is asked for again, as a caller would have to. */
  private static CompletableFuture<Integer> batch(ReadHandle reader, long first, long last) {
    int wanted = (int) (last - first + 1);
    return reader
        .batchReadAsync(first, wanted, BATCH_BYTES_MAX)
        .thenApply(PeerClient::consume)
        .thenCompose(
            got ->
                got >= wanted
                    ? CompletableFuture.completedFuture(got)
                    : batch(reader, first + got, last).thenApply(rest -> got + rest));
  }

  private static int consume(LedgerEntries found) {
    int count = 0;
    try (LedgerEntries entries = found) {
      for (LedgerEntry ignored : entries) {
        count++;
      }
    }
    return count;
  }

  /** The writer lives on, with a window of entries on their way: it learns that it was fenced. */
  private String recover(int entries, int window, long lengthNs) throws Exception {
    Latencies latencies = new Latencies();
    long began = System.nanoTime();
    do {
      WriteHandle writer = create();
      append(writer, SMALL, entries - window, window).finish();
      append(writer, SMALL, window, window);
      LockSupport.parkNanos(2_000_000);
      long start = System.nanoTime();
      open(writer.getId(), true).close();
      latencies.add(System.nanoTime() - start);
    } while (System.nanoTime() - began < lengthNs);
    return figures(latencies.count, 0, System.nanoTime() - began, latencies);
  }

  private String life(long lengthNs) throws Exception {
    Latencies latencies = new Latencies();
    long began = System.nanoTime();
    do {
      long start = System.nanoTime();
      WriteHandle writer = create();
      writer.append(new byte[1]);
      writer.close();
      latencies.add(System.nanoTime() - start);
    } while (System.nanoTime() - began < lengthNs);
    return figures(latencies.count, latencies.count, System.nanoTime() - began, latencies);
  }

  private String forget() throws Exception {
    for (long ledger : ledgers) {
      client.newDeleteLedgerOp().withLedgerId(ledger).execute().get();
    }
    int count = ledgers.size();
    ledgers.clear();
    return "{\"count\": " + count + "}";
  }

  private WriteHandle create() throws Exception {
    WriteHandle writer =
        client
            .newCreateLedgerOp()
            .withEnsembleSize(3)
            .withWriteQuorumSize(3)
            .withAckQuorumSize(2)
            .withDigestType(DigestType.CRC32C)
            .withPassword(PASSWORD)
            .execute()
            .get();
    ledgers.add(writer.getId());
    return writer;
  }

  private ReadHandle open(long ledger, boolean isRecovering) throws Exception {
    return client
        .newOpenLedgerOp()
        .withLedgerId(ledger)
        .withPassword(PASSWORD)
        .withDigestType(DigestType.CRC32C)
        .withRecovery(isRecovering)
        .execute()
        .get();
  }

  private Adds append(WriteHandle writer, int size, int count, int window) throws Exception {
    byte[] payload = payload(size);
    Adds adds = new Adds(window);
    for (int index = 0; index < count; index++) {
      adds.slots.acquire();
      adds.follow(writer.appendAsync(payload), 0);
    }
    return adds;
  }

  private byte[] payload(int size) {
    byte[] payload = new byte[size];
    random.nextBytes(payload);
    return payload;
  }

  private static int number(String word) {
    return Integer.parseInt(word);
  }

  private static long seconds(String word) {
    return (long) (Double.parseDouble(word) * 1e9);
  }

  private static String figures(long count, long bytes, long takenNs, Latencies latencies) {
    return String.format(
        Locale.ROOT,
        "{\"count\": %d, \"bytes\": %d, \"seconds\": %.6f, \"p50_ms\": %.4f, \"p99_ms\": %.4f}",
        count, bytes, takenNs / 1e9, latencies.percentileMs(0.5), latencies.percentileMs(0.99));
  }

  /** Adds on their way, at most a window of them, and how long some of them took. */
  private static final class Adds {
    final Semaphore slots;
    final Latencies latencies = new Latencies();
    private final int window;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    Adds(int window) {
      this.window = window;
      this.slots = new Semaphore(window);
    }

    /** Counts the latency from {@code startNs} unless that is 0. */
    void follow(CompletableFuture<Long> add, long startNs) {
      add.whenComplete(
          (entry, error) -> {
            if (error != null) {
              failure.compareAndSet(null, error);
            } else if (startNs != 0) {
              latencies.add(System.nanoTime() - startNs);
            }
            slots.release();
          });
    }

    void finish() throws Exception {
      slots.acquire(window);
      if (failure.get() != null) {
        throw new Exception(failure.get());
      }
    }
  }

  /** Nanoseconds; without boxes, so that the measuring makes no garbage. */
  private static final class Latencies {
    private long[] values = new long[1 << 12];
    private int count;

    synchronized void add(long value) {
      if (count == values.length) {
        values = Arrays.copyOf(values, 2 * count);
      }
      values[count++] = value;
    }

    synchronized double percentileMs(double share) {
      if (count == 0) {
        return 0;
      }
      Arrays.sort(values, 0, count);
      return values[Math.min(count - 1, (int) (share * count))] / 1e6;
    }
  }
}
