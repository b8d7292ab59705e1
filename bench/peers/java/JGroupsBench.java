import java.io.IOException;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.jgroups.Address;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.ReceiverAdapter;
import org.jgroups.View;

/**
 * JGroups at the tasks of fjm2-bench: pub, sub, ping and echo, each a process of its own, over UDP multicast.
 *
 * <p>Messages are those of bench/workload/, and so are the lines of JSON. All processes are members of one group. The
 * course of a run:
 *
 * <ul>
 *   <li>the publisher founds the group, waits until all subscribers have joined it, sends for a while to let the
 *       compilers of all processes do their work, says START, and waits until all subscribers have said WARM;
 *   <li>then it sends the messages that count, says END, and waits until all subscribers have said DONE.
 * </ul>
 *
 * <p>The settings are the fastest that lose nothing; see jgroups_peer.py, which starts the processes.
 */
public final class JGroupsBench {
  private static final String SYSTEM = "jgroups";
  private static final byte[] WARM = {'w'};
  private static final byte[] DONE = {'d'};
  private static final int CONTROL_BYTES = 16;
  private static final long END_NUMBER = (1L << 40) - 1;
  private static final long START = -1;
  private static final long RETRY_MS = 100;
  private static final long LINGER_MS = 200;
  private static final int HEADER_BYTES = 200;

  public static void main(String[] arguments) {
    Logger.getLogger("org.jgroups").setLevel(Level.OFF);
    try {
      Bench.Options options = new Bench.Options(arguments);
      switch (options.role) {
        case "pub" -> publish(options);
        case "sub" -> System.exit(subscribe(options) ? 0 : 1);
        case "ping" -> ping(options);
        case "echo" -> System.exit(echo(options) ? 0 : 1);
        default -> throw new Bench.Fault("unknown role " + options.role);
      }
      System.out.flush();
      Runtime.getRuntime().halt(0); // to leave the group in order takes seconds
    } catch (Bench.Fault fault) {
      System.err.println(fault.getMessage());
    } catch (Exception error) {
      System.err.println("JGroups: " + error);
    }
    Runtime.getRuntime().halt(1);
  }

  // Throughput.

  private static void publish(Bench.Options options) throws Exception {
    int receivers = options.number("--receivers");
    Member member = new Member(options);
    member.join(message -> member.count(message.getRawBuffer()[message.getOffset()]));
    member.awaitOthers(receivers, "subscribers");
    double warmUp = options.real("--warm-up-seconds");
    if (receivers > 0 && warmUp > 0) {
      send(member, 0, warmUp);
      member.say(START);
      member.await(member.warm, receivers, "subscribers to warm up");
    }
    member.deadline.doing = "sending";
    Bench.StopWatch watch = new Bench.StopWatch(0);
    long total = send(member, options.number("--count"), options.real("--seconds"));
    member.say(total);
    member.await(member.done, receivers, "confirmations");
    System.out.println(Bench.pubLine(SYSTEM, options, 0, total, watch));
  }

  private static long send(Member member, long count, double seconds) throws Exception {
    Bench.Workload workload = new Bench.Workload(member.options.size);
    return Bench.send(count, seconds, number -> member.multicast(workload.message(number).clone(), false));
  }

  private static boolean subscribe(Bench.Options options) throws Exception {
    System.out.println("{\"ready\": true}");
    Member member = new Member(options);
    Bench.Reception[] reception = {new Bench.Reception(SYSTEM, options)};
    long[] total = {-1};
    Semaphore ended = new Semaphore(0);
    member.join(
        message -> {
          byte[] bytes = message.getRawBuffer();
          int from = message.getOffset();
          if (!isControl(bytes, from, message.getLength())) {
            reception[0].take(bytes, from, message.getLength());
            return;
          }
          long said = ByteBuffer.wrap(bytes).getLong(from + 8);
          if (said == START) {
            reception[0] = new Bench.Reception(SYSTEM, options);
            member.tell(message.getSrc(), WARM);
          } else {
            total[0] = said;
            member.tell(message.getSrc(), DONE);
            ended.release();
          }
        });
    boolean isEnded = ended.tryAcquire(member.deadline.leftNanos(), TimeUnit.NANOSECONDS);
    System.out.println(reception[0].line(total[0]));
    if (isEnded) {
      Thread.sleep(LINGER_MS); // the confirmation may have to be sent again
    }
    System.out.flush();
    Runtime.getRuntime().halt(reception[0].isLossless(total[0]) ? 0 : 1);
    return false;
  }

  // Round trips: one message at a time.

  private static void ping(Bench.Options options) throws Exception {
    long[] times = new long[options.number("--warm-up") + options.number("--count")];
    Bench.Workload workload = new Bench.Workload(options.size);
    Semaphore back = new Semaphore(0);
    boolean[] isOther = {false};
    Member member = new Member(options);
    member.join(
        message -> {
          if (message.getLength() == 1) {
            member.count(message.getRawBuffer()[message.getOffset()]);
            return;
          }
          isOther[0] |= workload.numberOf(message.getRawBuffer(), message.getOffset()) < 0;
          back.release();
        });
    member.awaitOthers(1, "an echo");
    for (int number = 0; number < times.length; number++) {
      byte[] body = workload.message(number).clone();
      long start = System.nanoTime();
      member.multicast(body, true);
      member.await(back, 1, "message " + number + " to come back");
      times[number] = System.nanoTime() - start;
      if (isOther[0]) {
        throw new Bench.Fault("message " + number + " came back as another");
      }
    }
    member.say(times.length);
    member.await(member.done, 1, "the echo to end");
    System.out.println(Bench.pingLine(SYSTEM, options, times));
  }

  private static boolean echo(Bench.Options options) throws Exception {
    System.out.println("{\"ready\": true}");
    long[] count = {0};
    Semaphore ended = new Semaphore(0);
    Member member = new Member(options);
    member.join(
        message -> {
          if (isControl(message.getRawBuffer(), message.getOffset(), message.getLength())) {
            member.tell(message.getSrc(), DONE);
            ended.release();
          } else {
            count[0]++;
            member.multicast(message.getBuffer(), true);
          }
        });
    boolean isEnded = ended.tryAcquire(member.deadline.leftNanos(), TimeUnit.NANOSECONDS);
    if (isEnded) {
      Thread.sleep(LINGER_MS);
    }
    System.out.println(new Bench.Line().put("system", SYSTEM).put("messages", count[0]));
    System.out.flush();
    Runtime.getRuntime().halt(isEnded ? 0 : 1);
    return false;
  }

  private static boolean isControl(byte[] bytes, int from, int length) {
    return length == CONTROL_BYTES && ByteBuffer.wrap(bytes).getLong(from) == Bench.Workload.word(END_NUMBER);
  }

  /** Function that takes received messages, one after another. */
  private interface Taker {
    void take(Message message) throws Exception;
  }

  /** A channel that joins the group. */
  private static final class Member {
    final Bench.Options options;
    final Semaphore warm = new Semaphore(0);
    final Semaphore done = new Semaphore(0);
    final Bench.Deadline deadline;
    private final JChannel channel;
    private final Semaphore changed = new Semaphore(0);
    private volatile int members;

    Member(Bench.Options options) throws Exception {
      this.options = options;
      deadline = new Bench.Deadline(options, "joining the group");
      deadline.guard();
      channel = new JChannel(stack(options));
      channel.setOpt(JChannel.LOCAL, false);
    }

    void join(Taker taker) throws Exception {
      channel.setReceiver(
          new ReceiverAdapter() {
            @Override
            public void receive(Message message) {
              try {
                taker.take(message);
              } catch (Exception error) {
                System.err.println("JGroups: " + error);
                Runtime.getRuntime().halt(1);
              }
            }

            @Override
            public void viewAccepted(View view) {
              members = view.size();
              changed.release();
            }
          });
      if (options.isSpeaker()) {
        channel.connect(group());
        listen();
        return;
      }
      awaitSpeaker();
      channel.connect(group());
      while (members < 2 && deadline.leftNanos() > 0) { // nobody answered in time: a group of one is of no use
        channel.disconnect();
        channel.connect(group());
      }
    }

    private String group() {
      return "fjm2-bench-" + options.text("--port");
    }

    private InetSocketAddress door() throws Exception {
      return new InetSocketAddress(options.text("--address"), options.number("--port") + 1);
    }

    /** Open a door that shows that the group is founded. Groups that merge later do not always work. */
    private void listen() throws Exception {
      ServerSocket door = new ServerSocket();
      door.bind(door());
    }

    private void awaitSpeaker() throws Exception {
      while (deadline.leftNanos() > 0) {
        try (Socket knock = new Socket()) {
          knock.connect(door());
          return;
        } catch (IOException nobody) {
          Thread.sleep(RETRY_MS);
        }
      }
    }

    void awaitOthers(int count, String what) throws Exception {
      while (members <= count) {
        deadline.doing = "waiting for " + what + ", " + (members - 1) + " of " + count + " are there";
        if (!changed.tryAcquire(deadline.leftNanos(), TimeUnit.NANOSECONDS)) {
          throw deadline.late();
        }
      }
    }

    void await(Semaphore semaphore, int count, String what) throws Exception {
      deadline.doing = "waiting for " + what;
      if (!semaphore.tryAcquire(count, deadline.leftNanos(), TimeUnit.NANOSECONDS)) {
        throw deadline.late();
      }
    }

    void count(byte word) {
      (word == WARM[0] ? warm : done).release();
    }

    /** Multicast a message. The array belongs to the channel from now on, which may have to send it again. */
    void multicast(byte[] body, boolean isAlone) throws Exception {
      Message message = new Message(null, null, body);
      if (isAlone) {
        message.setFlag(Message.DONT_BUNDLE);
      }
      channel.send(message);
    }

    void say(long value) throws Exception {
      ByteBuffer control = ByteBuffer.allocate(CONTROL_BYTES);
      control.putLong(Bench.Workload.word(END_NUMBER)).putLong(value);
      multicast(control.array(), true);
    }

    /** Send one word to one member. */
    void tell(Address member, byte[] word) throws Exception {
      channel.send(new Message(member, null, word));
    }
  }

  private static String stack(Bench.Options options) throws Exception {
    InetAddress address = addressOf(options.text("--interface"));
    boolean isLocal = address.isLoopbackAddress();
    int datagram = options.number("--datagram");
    return "UDP(bind_addr="
        + address.getHostAddress()
        + ";mcast_addr="
        + options.text("--group")
        + ";mcast_port="
        + options.text("--port")
        + ";ip_ttl="
        + (isLocal ? 0 : 1)
        + ";disable_loopback="
        + !isLocal
        + ";loopback=true;tos=0;enable_diagnostics=false"
        + ";mcast_recv_buf_size=32M;mcast_send_buf_size=4M;ucast_recv_buf_size=8M;ucast_send_buf_size=2M"
        + ";enable_bundling=true;enable_unicast_bundling=false;max_bundle_timeout=5;max_bundle_size="
        + datagram
        + ";thread_pool.enabled=true;thread_pool.min_threads=1;thread_pool.max_threads=4"
        + ";thread_pool.queue_enabled=true;thread_pool.queue_max_size=100000;thread_pool.rejection_policy=run"
        + ";oob_thread_pool.enabled=true;oob_thread_pool.min_threads=1;oob_thread_pool.max_threads=4"
        + ";oob_thread_pool.queue_enabled=false;oob_thread_pool.rejection_policy=run)"
        + ":PING(timeout=500;num_initial_members=2)"
        + ":pbcast.NAKACK(use_mcast_xmit=true;gc_lag=0;retransmit_timeout=20,50,100,200;discard_delivered_msgs=true"
        + ";use_stats_for_retransmission=false;exponential_backoff=0)"
        + ":UNICAST(timeout=50,100,200)"
        + ":pbcast.STABLE(stability_delay=200;desired_avg_gossip=1000;max_bytes=8M)"
        + ":pbcast.GMS(join_timeout=1000;print_local_addr=false;view_bundling=true)"
        + ":UFC(max_credits=4M;min_threshold=0.4)"
        + ":MFC(min_threshold=0.4;max_credits="
        + options.number("--credits")
        + ")"
        + ":FRAG2(frag_size="
        + (datagram - HEADER_BYTES)
        + ")";
  }

  /** Return the address of an interface, which is given by its name or its address. */
  private static InetAddress addressOf(String nameOrAddress) throws Exception {
    NetworkInterface named = NetworkInterface.getByName(nameOrAddress);
    if (named == null) {
      return InetAddress.getByName(nameOrAddress);
    }
    for (InetAddress address : Collections.list(named.getInetAddresses())) {
      if (address instanceof Inet4Address) {
        return address;
      }
    }
    throw new Bench.Fault(nameOrAddress + " has no address");
  }
}
