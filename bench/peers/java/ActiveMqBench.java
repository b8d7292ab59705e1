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
import org.apache.activemq.broker.region.policy.VMPendingSubscriberMessageStoragePolicy;

/**
 * ActiveMQ Classic at the tasks of fjm2-bench: broker, pub, sub, ping and echo, each a process of its own.
 *
 * <p>Messages are those of bench/workload/, and so are the lines of JSON. The course of a run:
 *
 * <ul>
 *   <li>a subscriber puts one message into the queue HERE once it has its consumer;
 *   <li>the publisher waits for one such message of each subscriber, sends for a while to let the compilers of all
 *       processes do their work, says START on the topic, and waits for as many messages in the queue WARM;
 *   <li>then it sends the messages that count, says END, and waits for as many messages in the queue DONE.
 * </ul>
 *
 * <p>The settings are the fastest that lose nothing; see activemq_peer.py, which starts the processes.
 */
public final class ActiveMqBench {
  private static final String DATA = "fjm2-bench.data";
  private static final String BACK = "fjm2-bench.back";
  private static final String HERE = "fjm2-bench.here";
  private static final String WARM = "fjm2-bench.warm";
  private static final String DONE = "fjm2-bench.done";
  private static final String START = "start";
  private static final String END = "end";
  private static final String TOTAL = "messages";

  private static final String CLIENT_SETTINGS =
      "?tcpNoDelay=true&socketBufferSize=1048576&ioBufferSize=65536"
          + "&wireFormat.tightEncodingEnabled=false&wireFormat.maxInactivityDuration=0"
          + "&jms.useAsyncSend=true&jms.copyMessageOnSend=false&jms.optimizeAcknowledge=true"
          + "&jms.alwaysSessionAsync=false&jms.disableTimeStampsByDefault=true&jms.watchTopicAdvisories=false"
          + "&jms.prefetchPolicy.topicPrefetch=32766";
  private static final String SERVER_SETTINGS =
      "?transport.tcpNoDelay=true&transport.socketBufferSize=1048576&transport.ioBufferSize=65536"
          + "&wireFormat.tightEncodingEnabled=false&wireFormat.maxInactivityDuration=0";
  private static final String STOMP_SETTINGS =
      "?transport.tcpNoDelay=true&transport.socketBufferSize=1048576&transport.ioBufferSize=65536"
          + "&wireFormat.maxDataLength=536870912&wireFormat.maxFrameSize=536870912";
  private static final long BROKER_BYTES = 256L << 20;
  private static final long TOPIC_BYTES = 64L << 20;

  private static final String SYSTEM = "activemq";
  private static final String[] DIGITS = {
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"
  };
  private static final long RETRY_MS = 100;
  private static final int LOOK_EVERY = 256;

  public static void main(String[] arguments) {
    try {
      Bench.Options options = new Bench.Options(arguments);
      switch (options.role) {
        case "broker" -> broker(options);
        case "pub" -> publish(options);
        case "sub" -> System.exit(subscribe(options) ? 0 : 1);
        case "ping" -> ping(options);
        case "echo" -> echo(options);
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

  // The broker. It lives as long as somebody holds its standard input open.

  private static void broker(Bench.Options options) throws Exception {
    PolicyEntry policy = new PolicyEntry();
    policy.setTopic(">");
    policy.setProducerFlowControl(true);
    policy.setMemoryLimit(TOPIC_BYTES);
    policy.setPendingSubscriberPolicy(new VMPendingSubscriberMessageStoragePolicy());
    PolicyMap policies = new PolicyMap();
    policies.setPolicyEntries(List.of(policy));
    BrokerService broker = new BrokerService();
    broker.setBrokerName("fjm2-bench");
    broker.setDataDirectory("/nonexistent"); // no data directory is needed, and none may be made
    broker.setPersistent(false);
    broker.setUseJmx(false);
    broker.setAdvisorySupport(false);
    broker.setSchedulerSupport(false);
    broker.setUseVirtualTopics(false);
    broker.setEnableStatistics(false);
    broker.setUseShutdownHook(false);
    broker.setDestinationPolicy(policies);
    broker.getSystemUsage().getMemoryUsage().setLimit(BROKER_BYTES);
    broker.addConnector(
        options.has("--stomp")
            ? "stomp://" + options.place() + STOMP_SETTINGS
            : "tcp://" + options.place() + SERVER_SETTINGS);
    broker.start();
    if (!broker.waitUntilStarted()) {
      throw new Bench.Fault("the broker does not start: " + broker.getStartException());
    }
    System.out.println("{\"ready\": true}");
    while (System.in.read() >= 0) {}
    broker.stop();
  }

  // Throughput.

  private static void publish(Bench.Options options) throws Exception {
    int receivers = options.number("--receivers");
    Client client = new Client(options);
    MessageProducer producer = client.producer(client.session.createTopic(DATA));
    client.await(HERE, receivers, "subscribers");
    if (receivers > 0) {
      send(client, producer, 0, options.real("--warm-up-seconds"));
      say(client, producer, START, 0);
      client.await(WARM, receivers, "subscribers to warm up");
    }
    Bench.StopWatch watch = new Bench.StopWatch(options.number("--broker"));
    client.deadline.doing = "sending";
    long total = send(client, producer, options.number("--count"), options.real("--seconds"));
    say(client, producer, END, total);
    client.await(DONE, receivers, "confirmations");
    System.out.println(Bench.pubLine(SYSTEM, options, options.properties, total, watch));
    client.close();
  }

  private static long send(Client client, MessageProducer producer, long count, double seconds) throws Exception {
    Bench.Workload workload = new Bench.Workload(client.options.size);
    int properties = client.options.properties;
    return Bench.send(
        count,
        seconds,
        number -> {
          BytesMessage message = client.session.createBytesMessage();
          for (int place = 0; place < properties; place++) {
            setProperty(message, place, number);
          }
          message.writeBytes(workload.message(number));
          producer.send(message);
        });
  }

  private static void say(Client client, MessageProducer producer, String word, long total) throws JMSException {
    Message message = client.session.createMessage();
    message.setJMSType(word);
    message.setLongProperty(TOTAL, total);
    producer.send(message);
  }

  private static boolean subscribe(Bench.Options options) throws Exception {
    System.out.println("{\"ready\": true}");
    AtomicReference<Bench.Reception> reception = new AtomicReference<>(new Bench.Reception(SYSTEM, options));
    CountDownLatch ended = new CountDownLatch(1);
    AtomicReference<Exception> failure = new AtomicReference<>();
    Client client;
    try {
      client = new Client(options);
    } catch (Bench.Fault nobody) {
      System.out.println(reception.get().line(-1));
      return false;
    }
    long[] total = {-1};
    byte[] body = new byte[options.size];
    MessageConsumer consumer = client.session.createConsumer(client.session.createTopic(DATA));
    consumer.setMessageListener(
        message -> {
          try {
            String word = message.getJMSType();
            if (word == null) {
              take(reception.get(), message, body, options.properties);
            } else if (word.equals(START)) {
              reception.set(new Bench.Reception(SYSTEM, options));
              client.tell(WARM);
            } else if (word.equals(END)) {
              total[0] = message.getLongProperty(TOTAL);
              ended.countDown();
            }
          } catch (JMSException error) {
            failure.set(error);
            ended.countDown();
          }
        });
    client.tell(HERE);
    ended.await(client.deadline.leftNanos(), TimeUnit.NANOSECONDS);
    if (failure.get() != null) {
      throw failure.get();
    }
    if (total[0] >= 0) {
      client.tell(DONE);
    }
    System.out.println(reception.get().line(total[0]));
    boolean isLossless = reception.get().isLossless(total[0]);
    client.close();
    return isLossless;
  }

  private static void take(Bench.Reception reception, Message message, byte[] body, int properties)
      throws JMSException {
    BytesMessage bytes = (BytesMessage) message;
    bytes.readBytes(body);
    long number = reception.take(body, 0, bytes.getBodyLength());
    for (int place = 0; number >= 0 && number % LOOK_EVERY == 0 && place < properties; place++) {
      if (!hasProperty(message, place, number)) {
        reception.noteCorrupt();
      }
    }
  }

  // Round trips: the listener takes the time, and sends the next message.

  private static void ping(Bench.Options options) throws Exception {
    long[] times = new long[options.number("--warm-up") + options.number("--count")];
    Client client = new Client(options);
    MessageProducer producer = client.producer(client.session.createTopic(DATA));
    Bench.Workload workload = new Bench.Workload(options.size);
    long[] sent = {0, 0};
    CountDownLatch done = new CountDownLatch(1);
    AtomicReference<Exception> failure = new AtomicReference<>();
    client
        .session
        .createConsumer(client.session.createTopic(BACK))
        .setMessageListener(
            message -> {
              int number = (int) sent[0];
              times[number] = System.nanoTime() - sent[1];
              try {
                if (!workload.isMessage(bodyOf(message), number)) {
                  throw new Bench.Fault("message " + number + " came back as another");
                }
                if (number + 1 == times.length) {
                  done.countDown();
                  return;
                }
                sent[0] = number + 1;
                sent[1] = System.nanoTime();
                producer.send(bytesMessage(client, workload.message(number + 1)));
              } catch (JMSException | Bench.Fault error) {
                failure.set(error);
                done.countDown();
              }
            });
    client.await(HERE, 1, "an echo");
    sent[1] = System.nanoTime();
    producer.send(bytesMessage(client, workload.message(0)));
    boolean isDone = done.await(client.deadline.leftNanos(), TimeUnit.NANOSECONDS);
    if (failure.get() != null) {
      throw failure.get();
    }
    if (!isDone) {
      client.deadline.doing = "waiting for message " + sent[0] + " to come back";
      throw client.deadline.late();
    }
    say(client, producer, END, times.length);
    client.await(DONE, 1, "the echo to end");
    System.out.println(Bench.pingLine(SYSTEM, options, times));
    client.close();
  }

  private static void echo(Bench.Options options) throws Exception {
    System.out.println("{\"ready\": true}");
    long[] count = {0};
    CountDownLatch ended = new CountDownLatch(1);
    AtomicReference<Exception> failure = new AtomicReference<>();
    Client client = new Client(options);
    MessageProducer producer = client.producer(client.session.createTopic(BACK));
    client
        .session
        .createConsumer(client.session.createTopic(DATA))
        .setMessageListener(
            message -> {
              try {
                if (message.getJMSType() != null) {
                  ended.countDown();
                } else {
                  producer.send(bytesMessage(client, bodyOf(message)));
                  count[0]++;
                }
              } catch (JMSException error) {
                failure.set(error);
                ended.countDown();
              }
            });
    client.tell(HERE);
    boolean isEnded = ended.await(client.deadline.leftNanos(), TimeUnit.NANOSECONDS);
    if (failure.get() != null) {
      throw failure.get();
    }
    if (isEnded) {
      client.tell(DONE);
    }
    System.out.println(new Bench.Line().put("system", SYSTEM).put("messages", count[0]));
    client.close();
    System.exit(isEnded ? 0 : 1);
  }

  private static BytesMessage bytesMessage(Client client, byte[] body) throws JMSException {
    BytesMessage message = client.session.createBytesMessage();
    message.writeBytes(body);
    return message;
  }

  private static byte[] bodyOf(Message message) throws JMSException {
    BytesMessage bytes = (BytesMessage) message;
    byte[] body = new byte[(int) bytes.getBodyLength()];
    bytes.readBytes(body);
    return body;
  }

  /** A connection with a session for the topics and a session for the queues. */
  private static final class Client {
    final Bench.Options options;
    final Session session;
    final Bench.Deadline deadline;
    private final Connection connection;
    private final Session queues;
    private final MessageProducer teller;

    Client(Bench.Options options) throws Exception {
      this.options = options;
      deadline = new Bench.Deadline(options, "connecting to the broker");
      connection = connect();
      session = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
      queues = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      teller = producer(null);
      connection.start();
      deadline.guard();
    }

    private Connection connect() throws Exception {
      ActiveMQConnectionFactory factory =
          new ActiveMQConnectionFactory("tcp://" + options.place() + CLIENT_SETTINGS);
      while (true) {
        Connection made = null;
        try {
          made = factory.createConnection();
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

    MessageProducer producer(Topic topic) throws JMSException {
      MessageProducer made = (topic == null ? queues : session).createProducer(topic);
      made.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
      made.setDisableMessageID(true);
      made.setDisableMessageTimestamp(true);
      return made;
    }

    void tell(String queue) throws JMSException {
      synchronized (teller) {
        teller.send(queues.createQueue(queue), queues.createMessage());
      }
    }

    /** Take `count` messages from a queue. */
    void await(String queue, int count, String what) throws Exception {
      Session own = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      MessageConsumer consumer = own.createConsumer(own.createQueue(queue));
      for (int seen = 0; seen < count; seen++) {
        deadline.doing = "waiting for " + what + ", " + seen + " of " + count + " are there";
        if (consumer.receive(Math.max(1, deadline.leftNanos() / 1_000_000)) == null) {
          throw deadline.late();
        }
      }
      own.close();
    }

    /** Close the connection. The broker may have ended before, when nothing more has to be said. */
    void close() {
      try {
        connection.close();
      } catch (JMSException gone) {
        return;
      }
    }
  }

  // Properties, by the last digit of a message's number.

  private static void setProperty(Message message, int place, long number) throws JMSException {
    int digit = (int) (number % 10);
    if (place % 2 == 0) {
      message.setIntProperty("p" + place, digit);
    } else {
      message.setStringProperty("p" + place, DIGITS[digit]);
    }
  }

  private static boolean hasProperty(Message message, int place, long number) throws JMSException {
    int digit = (int) (number % 10);
    return place % 2 == 0
        ? message.getIntProperty("p" + place) == digit
        : DIGITS[digit].equals(message.getStringProperty("p" + place));
  }
}
