import java.io.File;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.Topic;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.region.policy.PolicyEntry;
import org.apache.activemq.broker.region.policy.PolicyMap;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;
import org.apache.activemq.store.kahadb.disk.journal.Journal;

/**
 * ActiveMQ Classic at the tasks of fjm2-bench durable: broker, sub, pub and awaited, each a process of its own.
 *
 * <p>The processes print lines of JSON and go on when they are given a line, as those of bench/durable/roles.py do. The
 * settings are the fastest that lose nothing; see bench/durable/activemq.py.
 */
public final class ActiveMqDurable {
  private static final String CLIENT_SETTINGS =
      "?tcpNoDelay=true&socketBufferSize=1048576&ioBufferSize=65536"
          + "&wireFormat.tightEncodingEnabled=false&wireFormat.maxInactivityDuration=0"
          + "&jms.copyMessageOnSend=false&jms.watchTopicAdvisories=false"
          + "&jms.prefetchPolicy.durableTopicPrefetch=8192";
  private static final String SERVER_SETTINGS =
      "?transport.tcpNoDelay=true&transport.socketBufferSize=1048576&transport.ioBufferSize=65536"
          + "&wireFormat.tightEncodingEnabled=false&wireFormat.maxInactivityDuration=0";
  private static final long BROKER_BYTES = 512L << 20;
  private static final long TOPIC_BYTES = 256L << 20;
  private static final long STORE_BYTES = 16L << 30;
  private static final long RETRY_MS = 100;

  public static void main(String[] arguments) {
    try {
      Bench.Options options = new Bench.Options(arguments);
      switch (options.role) {
        case "broker" -> broker(options);
        case "sub" -> subscribe(options);
        case "pub" -> publish(options);
        case "awaited" -> sendAwaited(options);
        default -> throw new Bench.Fault("unknown role " + options.role);
      }
      System.exit(0);
    } catch (Bench.Fault fault) {
      System.err.println(fault.getMessage());
    } catch (Exception error) {
      System.err.println("ActiveMQ: " + error);
    }
    System.exit(1);
  }

  /** Run the broker until the process is ended. */
  private static void broker(Bench.Options options) throws Exception {
    PolicyEntry policy = new PolicyEntry();
    policy.setTopic(">");
    policy.setProducerFlowControl(true);
    policy.setMemoryLimit(TOPIC_BYTES);
    PolicyMap policies = new PolicyMap();
    policies.setPolicyEntries(List.of(policy));
    KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
    store.setDirectory(new File(options.text("--folder"), "kahadb"));
    store.setJournalDiskSyncStrategy(Journal.JournalDiskSyncStrategy.ALWAYS.name());
    store.setPreallocationStrategy(Journal.PreallocationStrategy.ZEROS.name());
    store.setPreallocationScope(Journal.PreallocationScope.ENTIRE_JOURNAL_ASYNC.name());
    BrokerService broker = new BrokerService();
    broker.setBrokerName("fjm2-bench");
    broker.setDataDirectory(options.text("--folder"));
    broker.setPersistenceAdapter(store);
    broker.setUseJmx(false);
    broker.setAdvisorySupport(false);
    broker.setSchedulerSupport(false);
    broker.setUseVirtualTopics(false);
    broker.setEnableStatistics(false);
    broker.setDestinationPolicy(policies);
    broker.getSystemUsage().getMemoryUsage().setLimit(BROKER_BYTES);
    broker.getSystemUsage().getStoreUsage().setLimit(STORE_BYTES);
    broker.addConnector("tcp://" + options.place() + SERVER_SETTINGS);
    broker.start();
    if (!broker.waitUntilStarted()) {
      throw new Bench.Fault("the broker does not start: " + broker.getStartException());
    }
    say(new Bench.Line().put("ready", true));
    broker.waitUntilStopped();
  }

  private static void publish(Bench.Options options) throws Exception {
    Connection connection = connect(options, null);
    Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
    MessageProducer producer = producer(session, options);
    Bench.Workload workload = new Bench.Workload(options.size);
    int warmUp = options.number("--warm-up");
    int count = options.number("--count");
    send(session, producer, workload, options, 0, warmUp);
    say(new Bench.Line().put("warm", true));
    awaitWord();
    long began = System.nanoTime();
    send(session, producer, workload, options, warmUp, warmUp + count);
    long ended = System.nanoTime();
    say(new Bench.Line().put("began_ns", began).put("ended_ns", ended).put("messages", count));
    awaitWord();
    connection.close();
  }

  private static void send(
      Session session, MessageProducer producer, Bench.Workload workload, Bench.Options options, int first, int end)
      throws JMSException {
    int every = options.number("--every");
    for (int number = first; number < end; number++) {
      BytesMessage message = session.createBytesMessage();
      message.writeBytes(workload.message(number));
      producer.send(message);
      if ((number + 1) % every == 0 || number + 1 == end) {
        session.commit();
      }
    }
  }

  private static void sendAwaited(Bench.Options options) throws Exception {
    Connection connection = connect(options, null);
    Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    MessageProducer producer = producer(session, options);
    Bench.Workload workload = new Bench.Workload(options.size);
    int warmUp = options.number("--warm-up");
    long[] times = new long[warmUp + options.number("--count")];
    for (int number = 0; number < times.length; number++) {
      BytesMessage message = session.createBytesMessage();
      message.writeBytes(workload.message(number));
      long began = System.nanoTime();
      producer.send(message);
      times[number] = System.nanoTime() - began;
    }
    long[] ordered = Arrays.copyOfRange(times, warmUp, times.length);
    Arrays.sort(ordered);
    say(
        new Bench.Line()
            .put("count", ordered.length)
            .put("p50_us", at(ordered, 0.5))
            .put("p99_us", at(ordered, 0.99))
            .put("max_us", at(ordered, 1.0)));
    awaitWord();
    connection.close();
  }

  private static double at(long[] ordered, double part) {
    return ordered[Math.min(ordered.length - 1, (int) (ordered.length * part))] / 1000.0;
  }

  private static void subscribe(Bench.Options options) throws Exception {
    Connection connection = connect(options, options.text("--name"));
    Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
    Topic topic = session.createTopic(options.text("--topic"));
    MessageConsumer consumer = session.createDurableSubscriber(topic, options.text("--name"));
    Consumption consumption = new Consumption(session, options);
    if (consumption.total > 0) {
      consumer.setMessageListener(consumption::take);
    }
    say(new Bench.Line().put("ready", true));
    if (consumption.total > 0) {
      consumption.awaitEnd();
    }
    awaitWord();
    connection.close();
  }

  /** The messages of a subscriber, which a transaction acknowledges together. */
  private static final class Consumption {
    final int total;
    private final Session session;
    private final Bench.Options options;
    private final Bench.Workload workload;
    private final byte[] body;
    private final int warmUp;
    private final int every;
    private final CountDownLatch ended = new CountDownLatch(1);
    private final AtomicReference<Exception> failure = new AtomicReference<>();
    private long began;
    private long expected;
    private int count;
    private int corrupt;
    private int outOfOrder;
    private int lost;

    Consumption(Session session, Bench.Options options) {
      this.session = session;
      this.options = options;
      workload = new Bench.Workload(options.size);
      body = new byte[options.size];
      warmUp = options.number("--warm-up");
      every = options.number("--every");
      total = warmUp + options.number("--count");
    }

    void take(Message message) {
      try {
        check((BytesMessage) message);
        count++;
        if (count % every == 0 || count == warmUp || count == total) {
          session.commit();
          noteCommitted(System.nanoTime());
        }
      } catch (JMSException error) {
        failure.set(error);
        ended.countDown();
      }
    }

    private void check(BytesMessage message) throws JMSException {
      if (count == 0) {
        began = System.nanoTime();
      }
      message.readBytes(body);
      long number = message.getBodyLength() == options.size ? workload.numberOf(body, 0) : -1;
      if (number < 0) {
        corrupt++;
      } else if (number < expected) {
        outOfOrder++;
      } else {
        lost += (int) (number - expected);
        expected = number + 1;
      }
    }

    private void noteCommitted(long now) {
      if (count == warmUp) {
        say(new Bench.Line().put("warm", true));
      }
      if (count == total) {
        say(
            new Bench.Line()
                .put("began_ns", began)
                .put("ended_ns", now)
                .put("messages", count - corrupt - outOfOrder)
                .put("lost", lost)
                .put("duplicated", 0)
                .put("out_of_order", outOfOrder)
                .put("corrupt", corrupt));
        ended.countDown();
      }
    }

    void awaitEnd() throws Exception {
      long timeout = (long) (options.real("--timeout") * 1e9);
      if (!ended.await(timeout, TimeUnit.NANOSECONDS)) {
        throw new Bench.Fault("receiving: not done in time, " + count + " of " + total + " messages came");
      }
      if (failure.get() != null) {
        throw failure.get();
      }
    }
  }

  private static Connection connect(Bench.Options options, String clientId) throws Exception {
    ActiveMQConnectionFactory factory =
        new ActiveMQConnectionFactory("tcp://" + options.place() + CLIENT_SETTINGS);
    Bench.Deadline deadline = new Bench.Deadline(options, "connecting to the broker");
    while (true) {
      Connection made = null;
      try {
        made = factory.createConnection();
        if (clientId != null) {
          made.setClientID(clientId);
        }
        made.start();
        return made;
      } catch (JMSException nobody) {
        if (made != null) {
          made.close();
        }
        if (deadline.leftNanos() == 0) {
          throw deadline.late();
        }
        Thread.sleep(RETRY_MS);
      }
    }
  }

  private static MessageProducer producer(Session session, Bench.Options options) throws JMSException {
    MessageProducer made = session.createProducer(session.createTopic(options.text("--topic")));
    made.setDeliveryMode(DeliveryMode.PERSISTENT);
    return made;
  }

  private static void say(Bench.Line line) {
    System.out.println(line);
    System.out.flush();
  }

  /** Wait until the parent writes a line, or has ended. */
  private static void awaitWord() throws Exception {
    int read = System.in.read();
    while (read >= 0 && read != '\n') {
      read = System.in.read();
    }
  }
}
