import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Code that the peers in Java share: messages as bench/workload/ makes and checks them, and the lines of JSON. */
final class Bench {
  private static final int LOOK_EVERY = 64;

  private Bench() {}

  /** A failure that is reported in one line. */
  static final class Fault extends Exception {
    private static final long serialVersionUID = 1;

    Fault(String reason) {
      super(reason);
    }
  }

  /** The messages: each has its number, a check of the number, and one of five patterns. */
  static final class Workload {
    private static final int PATTERNS = 5;
    private static final long STEP = 0x9E3779B97F4A7C15L;
    private final ByteBuffer[] made = new ByteBuffer[PATTERNS];

    Workload(int size) {
      for (int pattern = 0; pattern < PATTERNS; pattern++) {
        ByteBuffer content = ByteBuffer.allocate(size + 8).order(ByteOrder.LITTLE_ENDIAN);
        content.position(8);
        for (long place = 1; content.remaining() >= 8; place++) {
          content.putLong(splitmix(((long) pattern << 32) + place));
        }
        made[pattern] = ByteBuffer.wrap(Arrays.copyOf(content.array(), size));
      }
    }

    private static long splitmix(long state) {
      long mixed = state * STEP;
      mixed = (mixed ^ mixed >>> 30) * 0xBF58476D1CE4E5B9L;
      mixed = (mixed ^ mixed >>> 27) * 0x94D049BB133111EBL;
      return mixed ^ mixed >>> 31;
    }

    static long word(long number) {
      return number << 24 | number * STEP >>> 40;
    }

    /** Return a message. The array is valid until the next message with the same pattern is made. */
    byte[] message(long number) {
      ByteBuffer buffer = made[(int) (number % PATTERNS)];
      buffer.putLong(0, word(number));
      return buffer.array();
    }

    boolean isMessage(byte[] body, long number) {
      return Arrays.equals(body, message(number));
    }

    /** Return the number of a message; -1 if the bytes are no message. */
    long numberOf(byte[] bytes, int from) {
      long word = ByteBuffer.wrap(bytes).getLong(from);
      long number = word >>> 24;
      if (word != word(number)) {
        return -1;
      }
      byte[] content = made[(int) (number % PATTERNS)].array();
      return Arrays.equals(bytes, from + 8, from + content.length, content, 8, content.length) ? number : -1;
    }
  }

  /** The messages that a subscriber receives: checked, counted and timed. */
  static final class Reception {
    private final String system;
    private final Options options;
    private final boolean isVerified;
    private final Workload workload;
    private final BitSet seen = new BitSet();
    private StopWatch watch;
    private double seconds;
    private int next;
    private long messages;
    private long duplicated;
    private long outOfOrder;
    private long corrupt;

    Reception(String system, Options options) {
      this.system = system;
      this.options = options;
      isVerified = !options.has("--no-verify");
      workload = new Workload(options.size);
    }

    /** Count a message with wrong properties as corrupt. */
    void noteCorrupt() {
      corrupt++;
    }

    /** Take a received message. Return its number, or -1 if it is corrupt or was not checked. */
    long take(byte[] bytes, int from, long length) {
      if (watch == null) {
        watch = new StopWatch(0);
      }
      long number = -1;
      if (!isVerified) {
        messages++;
      } else if (length != options.size) {
        corrupt++;
      } else {
        number = workload.numberOf(bytes, from);
        check(number);
      }
      if ((messages & LOOK_EVERY - 1) == 0) {
        seconds = watch.seconds();
      }
      return number;
    }

    private void check(long value) {
      if (value < 0 || value > Integer.MAX_VALUE - 1) {
        corrupt++;
        return;
      }
      int number = (int) value;
      if (number >= next) {
        next = number + 1;
      } else if (seen.get(number)) {
        duplicated++;
        return;
      } else {
        outOfOrder++;
      }
      seen.set(number);
      messages++;
    }

    boolean isLossless(long total) {
      return total > 0 && messages == total && duplicated == 0 && corrupt == 0;
    }

    Line line(long total) {
      double cpu = 0;
      if (watch != null) {
        seconds = total >= 0 ? watch.seconds() : seconds;
        cpu = watch.cpu();
      }
      double rate = seconds > 0 ? (messages - 1) / seconds : 0;
      return new Line()
          .put("system", system)
          .put("size", options.size)
          .put("ended", total >= 0)
          .put("verified", isVerified)
          .put("messages", messages)
          .put("bytes", messages * options.size)
          .put("seconds", seconds)
          .put("msgs_per_s", rate)
          .put("gbit_per_s", rate * options.size * 8e-9)
          .put("lost", total < 0 ? next - Math.min(next, messages) : Math.max(0, total - messages))
          .put("duplicated", duplicated)
          .put("out_of_order", outOfOrder)
          .put("corrupt", corrupt)
          .put("cpu_s", cpu);
    }
  }

  /** Stop watch of elapsed time, and of the CPU time of this process and of another one (the broker). */
  static final class StopWatch {
    private static final double TICKS_PER_S = 100;
    private final int other;
    private final long start = System.nanoTime();
    private final double cpu;

    StopWatch(int other) {
      this.other = other;
      cpu = total();
    }

    double seconds() {
      return (System.nanoTime() - start) / 1e9;
    }

    double cpu() {
      return total() - cpu;
    }

    private double total() {
      double own =
          ((com.sun.management.OperatingSystemMXBean) java.lang.management.ManagementFactory.getOperatingSystemMXBean())
              .getProcessCpuTime();
      return own / 1e9 + (other == 0 ? 0 : ticks() / TICKS_PER_S);
    }

    private long ticks() {
      try {
        String stat = Files.readString(Path.of("/proc/" + other + "/stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return Long.parseLong(fields[11]) + Long.parseLong(fields[12]);
      } catch (IOException gone) {
        return 0;
      }
    }
  }

  /** The end of the time that a process may take, and its error message for that case. */
  static final class Deadline {
    volatile String doing = "";
    private final Options options;
    private final long at;

    Deadline(Options options, String doing) {
      this.options = options;
      this.doing = doing;
      // The process that starts us may have used a part of the time.
      at = System.nanoTime() + (long) (options.real(options.has("--left") ? "--left" : "--timeout") * 1e9);
    }

    long leftNanos() {
      return Math.max(0, at - System.nanoTime());
    }

    Fault late() {
      return new Fault(doing + ": not done within " + options.text("--timeout") + " s");
    }

    /** Have a publisher or ping end with an error when the time is over: sending or joining may take for ever. */
    void guard() {
      if (!options.isSpeaker()) {
        return;
      }
      Thread guard =
          new Thread(
              () -> {
                try {
                  TimeUnit.NANOSECONDS.sleep(leftNanos());
                } catch (InterruptedException ended) {
                  return;
                }
                System.err.println(late().getMessage());
                Runtime.getRuntime().halt(1);
              });
      guard.setDaemon(true);
      guard.start();
    }
  }

  /** Function that sends the message with a number. */
  interface Sender {
    void send(long number) throws Exception;
  }

  /** Send messages from number 0 on: `count` of them, or for `seconds` if that is 0. Return their number. */
  static long send(long count, double seconds, Sender sender) throws Exception {
    long until = System.nanoTime() + (long) (seconds * 1e9);
    long number = 0;
    while (count > 0 ? number < count : number % LOOK_EVERY != 0 || System.nanoTime() < until) {
      sender.send(number);
      number++;
    }
    return number;
  }

  static Line pubLine(String system, Options options, int properties, long messages, StopWatch watch) {
    double seconds = watch.seconds();
    double cpu = watch.cpu();
    return new Line()
        .put("system", system)
        .put("object", "message")
        .put("size", options.size)
        .put("batch", 1)
        .put("properties", properties)
        .put("receivers", options.number("--receivers"))
        .put("messages", messages)
        .put("bytes", messages * options.size)
        .put("seconds", seconds)
        .put("msgs_per_s", messages / seconds)
        .put("gbit_per_s", messages / seconds * options.size * 8e-9)
        .put("cpu_s", cpu);
  }

  /** Return the result line of round trips in nanoseconds. Those of the warm-up do not count. */
  static Line pingLine(String system, Options options, long[] times) {
    long[] ordered = Arrays.copyOfRange(times, options.number("--warm-up"), times.length);
    Arrays.sort(ordered);
    return new Line()
        .put("system", system)
        .put("size", options.size)
        .put("count", ordered.length)
        .put("p50_us", at(ordered, 0.5))
        .put("p99_us", at(ordered, 0.99))
        .put("p999_us", at(ordered, 0.999))
        .put("max_us", at(ordered, 1.0));
  }

  private static double at(long[] ordered, double part) {
    return ordered.length == 0 ? 0 : ordered[Math.min(ordered.length - 1, (int) (ordered.length * part))] / 1000.0;
  }

  /** A line of JSON. */
  static final class Line {
    private final StringBuilder text = new StringBuilder();

    Line put(String name, Object value) {
      text.append(text.isEmpty() ? "{" : ", ").append('"').append(name).append("\": ");
      if (value instanceof String) {
        text.append('"').append(value).append('"');
      } else if (value instanceof Double) {
        text.append(String.format(Locale.ROOT, "%.6f", value));
      } else {
        text.append(value);
      }
      return this;
    }

    @Override
    public String toString() {
      return text + "}";
    }
  }

  static final class Options {
    final String role;
    final int size;
    final int properties;
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments) {
      role = arguments[0];
      for (int at = 1; at < arguments.length; at += 2) {
        values.put(arguments[at], arguments[at + 1]);
      }
      size = number("--size");
      properties = number("--properties");
    }

    /** Return true for a publisher or ping, to which the other processes listen. */
    boolean isSpeaker() {
      return role.equals("pub") || role.equals("ping");
    }

    boolean has(String name) {
      return values.containsKey(name);
    }

    String text(String name) {
      return values.get(name);
    }

    int number(String name) {
      return Integer.parseInt(values.getOrDefault(name, "0"));
    }

    double real(String name) {
      return Double.parseDouble(values.getOrDefault(name, "0"));
    }

    String place() {
      return text("--address") + ":" + text("--port");
    }
  }
}
