import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.DynamicMessage;
import java.io.ByteArrayInputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.arrow.compression.CommonsCompressionFactory;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.bookkeeper.client.api.*;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** Rows of an {@code arrow} log, and appends to a {@code raw} one, with Apache BookKeeper's client alone; see docs/java.md. */
public final class Logs implements AutoCloseable {
  private static final int ENVELOPE = 32; // magic 4, version 1, kind 1, 0 2, schema 4, first row 8, rows 4, time 8
  private final String root; // of the logs, in ZooKeeper
  private final ZooKeeper zk;
  private final BookKeeper bookKeeper;
  private final FileDescriptor format;
  private final byte[] password;

  Logs(String servers, String ledgers, Path descriptors, String password) throws Exception {
    root = ledgers + "-logs";
    zk = new ZooKeeper(servers, 10_000, event -> {});
    String uri = "zk+hierarchical://" + servers.replace(',', ';') + ledgers;
    bookKeeper = BookKeeper.newBuilder(new ClientConfiguration().setMetadataServiceUri(uri)).build();
    FileDescriptorSet set = FileDescriptorSet.parseFrom(Files.readAllBytes(descriptors));
    format = FileDescriptor.buildFrom(set.getFile(0), new FileDescriptor[0]);
    this.password = password.getBytes(StandardCharsets.UTF_8);
  }

  /** Prints the committed rows of an {@code arrow} log, in its order. */
  void read(String log) throws Exception {
    String tree = tree(log);
    DynamicMessage head = node("Head", tree + "/head", null);
    try (RootAllocator memory = new RootAllocator()) {
      for (DynamicMessage range : ranges(tree, head)) {
        long row = (long) field(range, "first_row");
        byte[] schema = schema(tree, (int) field(range, "schema_id"));
        try (ReadHandle ledger = bookKeeper.newOpenLedgerOp().withLedgerId((long) field(range, "ledger_id"))
                .withPassword(password).execute().get();
            LedgerEntries entries = ledger.read((long) field(range, "first_entry"), (long) field(range, "last_entry"))) {
          for (LedgerEntry entry : entries) {
            byte[] bytes = entry.getEntryBytes();
            int count = ByteBuffer.wrap(bytes).getInt(20);
            long dropped = Math.max(0, (long) field(head, "base_row") - row); // by a truncation
            row += count;
            if (dropped >= count) continue;
            byte[] stream = Arrays.copyOf(schema, schema.length + bytes.length - ENVELOPE);
            System.arraycopy(bytes, ENVELOPE, stream, schema.length, bytes.length - ENVELOPE);
            try (ArrowStreamReader rows =
                new ArrowStreamReader(new ByteArrayInputStream(stream), memory, CommonsCompressionFactory.INSTANCE)) {
              rows.loadNextBatch();
              try (VectorSchemaRoot kept = rows.getVectorSchemaRoot().slice((int) dropped)) { // it holds memory of its own
                System.out.print(kept.contentToTSVString());
              }
            }
          }
        }
      }
    }
  }

  /** Appends rows to a {@code raw} log: a ledger first, then the log's head, which names it if nobody was faster. */
  void append(String log, List<byte[]> rows) throws Exception {
    String path = tree(log) + "/head";
    DynamicMessage settings = (DynamicMessage) field(node("Head", path, null), "settings");
    if (!field(settings, "payload_format").equals("raw")) throw new IllegalArgumentException("not a raw log: " + log);
    WriteHandle ledger = bookKeeper.newCreateLedgerOp().withEnsembleSize((int) field(settings, "ensemble_size"))
        .withWriteQuorumSize((int) field(settings, "write_quorum")).withAckQuorumSize((int) field(settings, "ack_quorum"))
        .withDigestType(DigestType.CRC32C).withPassword(password)
        .withCustomMetadata(Map.of("log", log.getBytes(StandardCharsets.UTF_8))).execute().get();
    for (byte[] row : rows) ledger.append(row);
    ledger.close(); // its end is decided before anybody hears of it
    for (boolean isNamed = false; !isNamed; ) {
      Stat stat = new Stat();
      DynamicMessage head = node("Head", path, stat);
      if (has(head, "open_ledger")) throw new IllegalStateException("a writer holds the log open: " + log);
      if (ranges(tree(log), head).stream().anyMatch(r -> field(r, "ledger_id").equals(ledger.getId()))) return;
      long row = (long) field(head, "next_row");
      long now = Math.max(System.currentTimeMillis(), (long) field(head, "last_commit_ms"));
      Map<String, Object> range = Map.of("ledger_id", ledger.getId(), "first_entry", 0L, "last_entry", rows.size() - 1L,
          "first_row", row, "rows", (long) rows.size(), "size_bytes", ledger.getLength(),
          "schema_id", field(head, "schema_id"), "commit_ms", now);
      DynamicMessage.Builder added = DynamicMessage.newBuilder(format.findMessageTypeByName("Range"));
      range.forEach((name, value) -> added.setField(added.getDescriptorForType().findFieldByName(name), value));
      DynamicMessage.Builder next = head.toBuilder();
      next.addRepeatedField(next.getDescriptorForType().findFieldByName("ranges"), added.build());
      next.setField(next.getDescriptorForType().findFieldByName("next_row"), row + rows.size());
      next.setField(next.getDescriptorForType().findFieldByName("last_commit_ms"), now);
      try {
        zk.setData(path, next.build().toByteArray(), stat.getVersion());
        isNamed = true;
      } catch (KeeperException.BadVersionException | KeeperException.ConnectionLossException again) {
        Thread.sleep(100); // another commit came first, or nobody knows: the head says whether ours is there
      }
    }
  }

  private List<DynamicMessage> ranges(String tree, DynamicMessage list) throws Exception {
    List<DynamicMessage> found = new ArrayList<>();
    for (Object each : (List<?>) field(list, "chunks")) {
      DynamicMessage chunk = (DynamicMessage) each;
      String name = String.format("%010d-%d", (long) field(chunk, "epoch"), (int) field(chunk, "serial"));
      found.addAll(ranges(tree, node("Chunk", tree + "/chunks/" + name, null)));
    }
    for (Object each : (List<?>) field(list, "ranges")) found.add((DynamicMessage) each);
    return found;
  }

  private byte[] schema(String tree, int id) throws Exception {
    Object json = ((com.google.protobuf.ByteString) field(node("Schema", tree + "/schemas/" + id, null), "schema")).toStringUtf8();
    return Base64.getDecoder().decode(new ObjectMapper().readTree((String) json).get("arrow").asText());
  }

  private String tree(String log) throws Exception {
    return root + "/" + field(node("Name", root + "/names/" + log, null), "log_id");
  }

  private DynamicMessage node(String kind, String path, Stat stat) throws Exception {
    return DynamicMessage.parseFrom(format.findMessageTypeByName(kind), zk.getData(path, false, stat));
  }

  private static Object field(DynamicMessage message, String name) {
    return message.getField(message.getDescriptorForType().findFieldByName(name));
  }

  private static boolean has(DynamicMessage message, String name) {
    FieldDescriptor field = message.getDescriptorForType().findFieldByName(name);
    return message.hasField(field);
  }

  @Override
  public void close() throws Exception {
    bookKeeper.close();
    zk.close();
  }

  /** servers, ledgers root, descriptors, password, then {@code read LOG} or {@code append LOG ROW...}. */
  public static void main(String[] given) throws Exception {
    try (Logs logs = new Logs(given[0], given[1], Path.of(given[2]), given[3])) {
      if (given[4].equals("read")) {
        logs.read(given[5]);
      } else {
        List<byte[]> rows = new ArrayList<>();
        for (String row : Arrays.copyOfRange(given, 6, given.length)) rows.add(row.getBytes(StandardCharsets.UTF_8));
        logs.append(given[5], rows);
      }
    }
  }
}
