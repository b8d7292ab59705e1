/* NRL's libnorm as a peer of the benchmarks: publisher, subscriber, ping and echo on its public API.
 *
 *   libnorm_bench pub  --group G --port P --interface IF --size B (--count N | --seconds S) [--object stream|data]
 *                      [--receivers K] [--rate BITS_PER_S] [--segment-size N] [--window BYTES] [--marks N] [--batch N]
 *                      [--timeout S]
 *   libnorm_bench sub  --group G --port P --interface IF --size B [--segment-size N] [--no-verify] [--timeout S]
 *   libnorm_bench ping --group G --port P --interface IF --size B [--count N] [--warm-up N] [--timeout S]
 *   libnorm_bench echo --group G --port P --interface IF --size B [--timeout S]
 *
 * It prints the lines of JSON that all peers print. Messages are those of workload.py. Subscribers make themselves known
 * by plain datagrams to the group at the next port, as a libnorm receiver can't send commands. Flow control is by
 * positive acknowledgement: the publisher is never more than a window ahead of the last watermark confirmed by all.
 * Exit status: 0 all done, 1 not, 2 wrong arguments.
 */
#define _GNU_SOURCE

/* Two declarations of normApi.h are C++ only (a reference, a default argument) although the header means to serve C.
 * Neither function is used here; as macros their declarations turn into harmless ones. */
#define NormGetRxBindAddress(session, address, length, port) NormBenchUnusedA(void)
#define NormStreamGetVacancy(stream, wanted) NormBenchUnusedB(void)
#include <normApi.h>
#undef NormGetRxBindAddress
#undef NormStreamGetVacancy

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#define SYSTEM "libnorm"
#include "workload.h"

enum { MAX_NODES = 256, SOCKET_BUFFER = 8 << 20, BUFFER_SPACE = 64 << 20, OBJECTS = 64 };
enum { BLOCK_SEGMENTS = 64 };
static const double TICK = 0.1, HELLO_INTERVAL = 0.4, LINGER = 1.0;
static const char MAGIC[8] = {'f', 'j', 'm', '2', 'b', 'n', 'c', 'h'};

enum role { PUB, SUB, PING, ECHO };

struct options {
    enum role role;
    const char *group, *interface;
    unsigned port, size, segment_size, receivers, window, marks, batch, warm_up;
    uint64_t count;
    double seconds, rate, timeout;
    bool data, verify;
};

/* Arguments. */

static void parse(struct options *o, int argc, char **argv) {
    static const char *const roles[] = {"pub", "sub", "ping", "echo"};
    int role = 0;
    while (role < 4 && (argc < 2 || strcmp(argv[1], roles[role]) != 0)) role++;
    if (role == 4) {
        fputs("Usage: libnorm_bench pub|sub|ping|echo OPTIONS\n", stderr);
        _exit(2);
    }
    o->role = (enum role)role;
    for (int i = 2; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(name, "--no-verify") == 0) {
            o->verify = false;
            continue;
        }
        if (strcmp(name, "--group") == 0) o->group = value;
        else if (strcmp(name, "--interface") == 0) o->interface = value;
        else if (strcmp(name, "--object") == 0) o->data = strcmp(value, "data") == 0;
        else if (strcmp(name, "--port") == 0) o->port = (unsigned)number(name, value);
        else if (strcmp(name, "--size") == 0) o->size = (unsigned)number(name, value);
        else if (strcmp(name, "--segment-size") == 0) o->segment_size = (unsigned)number(name, value);
        else if (strcmp(name, "--receivers") == 0) o->receivers = (unsigned)number(name, value);
        else if (strcmp(name, "--window") == 0) o->window = (unsigned)number(name, value);
        else if (strcmp(name, "--marks") == 0) o->marks = (unsigned)number(name, value);
        else if (strcmp(name, "--batch") == 0) o->batch = (unsigned)number(name, value);
        else if (strcmp(name, "--warm-up") == 0) o->warm_up = (unsigned)number(name, value);
        else if (strcmp(name, "--count") == 0) o->count = (uint64_t)number(name, value);
        else if (strcmp(name, "--seconds") == 0) o->seconds = number(name, value);
        else if (strcmp(name, "--rate") == 0) o->rate = number(name, value);
        else if (strcmp(name, "--timeout") == 0) o->timeout = number(name, value);
        else {
            fprintf(stderr, "Error: unknown option %s\n", name);
            _exit(2);
        }
        i++;
    }
    if (o->port < 1 || o->port > 65534) fail("--port: expected 1 to 65534");
    if (o->size < 8 || o->size > 1 << 28) fail("--size: expected 8 to 268435456");
    if (o->segment_size < 64 || o->segment_size > 65000) fail("--segment-size: expected 64 to 65000");
    if (o->receivers > MAX_NODES) fail("--receivers: expected 0 to %d", MAX_NODES);
    if (o->batch < 1 || o->marks < 1) fail("--batch, --marks: expected 1 or more");
}

/* The session. */

/* libnorm wants the interface's name: given an address, it asks the kernel for more than the kernel keeps. */
static const char *interface_name(const char *name_or_address) {
    static char found[IF_NAMESIZE];
    struct ifaddrs *all, *a;
    struct in_addr wanted;
    if (inet_pton(AF_INET, name_or_address, &wanted) != 1) return name_or_address;
    if (getifaddrs(&all) != 0) fail("getifaddrs: %s", strerror(errno));
    for (a = all; a != NULL; a = a->ifa_next)
        if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET &&
            ((struct sockaddr_in *)a->ifa_addr)->sin_addr.s_addr == wanted.s_addr)
            snprintf(found, sizeof found, "%s", a->ifa_name);
    freeifaddrs(all);
    if (found[0] == '\0') fail("no interface has the address %s", name_or_address);
    return found;
}

struct node {
    const struct options *o;
    NormInstanceHandle instance;
    NormSessionHandle session;
    const char *interface;
    double deadline;
    uint32_t id;
    struct workload workload;
};

static void open_node(struct node *n, const struct options *o) {
    n->o = o;
    n->deadline = now() + o->timeout;
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    /* libnorm draws its backoffs from rand() and does not seed it: equal receivers would all answer at once. */
    srand((unsigned)clock.tv_nsec ^ (unsigned)getpid() << 8);
    n->id = ((uint32_t)clock.tv_nsec ^ (uint32_t)getpid() * 2654435761u) % 0xfffffffeu + 1;
    make_patterns(&n->workload, o->size);
    n->instance = NormCreateInstance(false);
    if (n->instance == NORM_INSTANCE_INVALID) fail("NormCreateInstance");
    n->session = NormCreateSession(n->instance, o->group, (UINT16)o->port, n->id);
    if (n->session == NORM_SESSION_INVALID) fail("NormCreateSession %s/%u", o->group, o->port);
    n->interface = interface_name(o->interface);
    bool local = strcmp(n->interface, "lo") == 0;
    NormSetRxPortReuse(n->session, true, NULL, NULL, 0);
    if (!NormSetMulticastInterface(n->session, n->interface)) fail("NormSetMulticastInterface %s", n->interface);
    if (!NormSetTTL(n->session, local ? 0 : 1)) fail("NormSetTTL");
    /* Among hosts nobody needs to hear himself, and it costs him. */
    if (!NormSetMulticastLoopback(n->session, local)) fail("NormSetMulticastLoopback");
    /* Large segments leave in fragments; else the kernel refuses them, and libnorm tries for ever. */
    if (!NormSetFragmentation(n->session, true)) fail("NormSetFragmentation");
    /* A millisecond, whatever probes would say: they wait behind data in receivers' buffers, the estimate grows by that,
     * and confirmations, which are asked for at its pace, come the later. */
    NormSetGrttEstimate(n->session, 0.001);
    NormSetGrttProbingMode(n->session, NORM_PROBE_NONE);
    NormSetBackoffFactor(n->session, o->receivers > 1 ? 2.0 : 0.0);
    NormSetGroupSize(n->session, 10);
}

static void start_sender(struct node *n, unsigned segment_size) {
    NormSetTxRate(n->session, n->o->rate);
    NormSetTxCacheBounds(n->session, (NormSize)1 << 30, OBJECTS / 2, OBJECTS / 2);
    if (!NormStartSender(n->session, (NormSessionId)n->id, BUFFER_SPACE, (UINT16)segment_size, BLOCK_SEGMENTS, 0, 5))
        fail("NormStartSender");
    NormSetTxSocketBuffer(n->session, SOCKET_BUFFER);
}

static void start_receiver(struct node *n) {
    NormSetDefaultUnicastNack(n->session, false);
    NormSetDefaultSyncPolicy(n->session, NORM_SYNC_STREAM);
    NormSetRxCacheLimit(n->session, 1024);
    if (!NormStartReceiver(n->session, BUFFER_SPACE)) fail("NormStartReceiver");
    NormSetRxSocketBuffer(n->session, SOCKET_BUFFER);
}

/* Waits for something from libnorm, no longer than until `deadline` and never longer than a tick. */
static void wait_for_event(const struct node *n, double deadline) {
    double left = deadline - now();
    if (left > TICK) left = TICK;
    struct pollfd descriptor = {.fd = NormGetDescriptor(n->instance), .events = POLLIN};
    if (left > 0) poll(&descriptor, 1, (int)(left * 1000) + 1);
}

static bool is_over(const struct node *n) {
    return interrupted || now() >= n->deadline;
}

/* Who is there: datagrams with a magic and a node id, to the group at the port after the session's. */

struct __attribute__((packed)) hello {
    char magic[8];
    uint32_t id;
};

static int hello_socket(const struct node *n, bool listens) {
    int one = 1, file = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    unsigned char ttl = strcmp(n->interface, "lo") == 0 ? 0 : 1;
    struct ip_mreqn membership = {.imr_ifindex = (int)if_nametoindex(n->interface)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(n->o->port + 1))};
    if (file < 0 || inet_pton(AF_INET, n->o->group, &membership.imr_multiaddr) != 1) fail("%s: no group", n->o->group);
    address.sin_addr = membership.imr_multiaddr;
    setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (listens && (bind(file, (struct sockaddr *)&address, sizeof address) != 0 ||
                    setsockopt(file, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) != 0))
        fail("port %u: %s", n->o->port + 1, strerror(errno));
    setsockopt(file, IPPROTO_IP, IP_MULTICAST_IF, &membership, sizeof membership);
    setsockopt(file, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof ttl);
    return file;
}

static void say_hello(const struct node *n, int file) {
    struct hello hello = {.id = n->id};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(n->o->port + 1))};
    memcpy(hello.magic, MAGIC, sizeof MAGIC);
    inet_pton(AF_INET, n->o->group, &address.sin_addr);
    sendto(file, &hello, sizeof hello, 0, (struct sockaddr *)&address, sizeof address);
}

static unsigned wait_for_receivers(const struct node *n, uint32_t *ids) {
    unsigned count = 0;
    if (n->o->receivers == 0) return 0;
    int file = hello_socket(n, true);
    while (count < n->o->receivers) {
        struct pollfd descriptor = {.fd = file, .events = POLLIN};
        struct hello hello;
        if (is_over(n)) {
            if (interrupted) _exit(130);
            fail("waiting for %u receivers, %u are there: not done within %g s", n->o->receivers, count, n->o->timeout);
        }
        poll(&descriptor, 1, (int)(TICK * 1000));
        if (recv(file, &hello, sizeof hello, 0) != sizeof hello || memcmp(hello.magic, MAGIC, sizeof MAGIC) != 0) continue;
        unsigned i = 0;
        while (i < count && ids[i] != hello.id) i++;
        if (i == count) ids[count++] = hello.id;
    }
    close(file);
    return count;
}

/* Publishing. */

struct publisher {
    struct node node;
    NormObjectHandle stream, last_object;
    bool pending;         /* a watermark is under way */
    uint64_t given;       /* bytes handed over */
    uint64_t marked, confirmed;
    uint64_t waits;
    unsigned receivers;
    uint32_t ids[MAX_NODES];
};

static void take_events(struct publisher *p) {
    NormEvent event;
    while (NormGetNextEvent(p->node.instance, &event, false))
        if (event.type == NORM_TX_WATERMARK_COMPLETED && p->pending) {
            /* Those who did not answer are asked again: nothing is to be lost. */
            if (NormGetAckingStatus(p->node.session, NORM_NODE_ANY) == NORM_ACK_SUCCESS) {
                p->pending = false;
                p->confirmed = p->marked;
            } else {
                NormResetWatermark(p->node.session);
            }
        }
}

static void mark(struct publisher *p) {
    NormObjectHandle object = p->stream != NORM_OBJECT_INVALID ? p->stream : p->last_object;
    if (!NormSetWatermark(p->node.session, object, true)) fail("NormSetWatermark");
    p->marked = p->given;
    p->pending = true;
}

/* Until `size` more bytes are within the window. False when it is over. */
static bool wait_for_window(struct publisher *p, size_t size) {
    uint64_t window = p->node.o->window > 2 * size ? p->node.o->window : 2 * size;
    if (p->receivers == 0) return true;
    if (!p->pending && p->given - p->marked >= window / p->node.o->marks) mark(p);
    if (p->given - p->confirmed + size <= window) return true;
    p->waits++;
    while (p->given - p->confirmed + size > window) {
        take_events(p);
        if (!p->pending && p->given > p->marked) mark(p);
        if (p->given - p->confirmed + size <= window) break;
        if (is_over(&p->node)) return false;
        wait_for_event(&p->node, p->node.deadline);
    }
    return true;
}

static bool write_stream(struct publisher *p, const unsigned char *bytes, size_t size) {
    size_t written = 0;
    if (!wait_for_window(p, size)) return false;
    while (written < size) {
        unsigned taken = NormStreamWrite(p->stream, (const char *)bytes + written, (unsigned)(size - written));
        written += taken;
        if (taken > 0) continue;
        if (is_over(&p->node)) return false;
        wait_for_event(&p->node, p->node.deadline);
        take_events(p);
    }
    NormStreamMarkEom(p->stream);
    p->given += size;
    return true;
}

static bool write_object(struct publisher *p, const unsigned char *bytes, size_t size) {
    if (!wait_for_window(p, size)) return false;
    for (;;) {
        p->last_object = NormDataEnqueue(p->node.session, (const char *)bytes, (UINT32)size, NULL, 0);
        if (p->last_object != NORM_OBJECT_INVALID) break;
        if (is_over(&p->node)) return false;
        wait_for_event(&p->node, p->node.deadline);
        take_events(p);
    }
    p->given += size;
    return true;
}

static bool finish(struct publisher *p) {
    if (p->stream != NORM_OBJECT_INVALID) NormStreamFlush(p->stream, true, NORM_FLUSH_ACTIVE);
    if (p->receivers == 0) return true;
    while (p->pending || p->confirmed < p->given) {
        take_events(p);
        if (!p->pending && p->confirmed < p->given) mark(p);
        if (is_over(&p->node)) return false;
        if (p->pending) wait_for_event(&p->node, p->node.deadline);
    }
    return true;
}

static bool publish(struct publisher *p, uint64_t *sent) {
    const struct options *o = p->node.o;
    const struct workload *w = &p->node.workload;
    size_t buffers = o->data ? OBJECTS : 1, batch = o->data ? 1 : o->batch;
    unsigned char *ring = allocate(buffers * batch * o->size), end[END_BYTES];
    double until = o->seconds > 0 ? now() + o->seconds : 0;
    uint64_t most = o->seconds > 0 ? UINT64_MAX : o->count;
    /* Patterns are laid out once where each buffer always has the same ones. */
    while (*sent < most) {
        unsigned char *at = ring + *sent / batch % buffers * batch * o->size;
        uint64_t some = most - *sent < batch ? most - *sent : batch;
        for (uint64_t i = 0; i < some; i++) make_message(w, *sent + i, at + i * o->size);
        if (!(o->data ? write_object(p, at, o->size) : write_stream(p, at, some * o->size))) return false;
        *sent += some;
        if (until > 0 && (*sent / batch % 32 == 0 || o->size > 16384) && now() >= until) break;
    }
    memset(end, 0, sizeof end);
    put_word(end, word_of(END_NUMBER));
    put_word(end + 8, *sent);
    return o->data ? write_object(p, end, sizeof end) && finish(p) : write_stream(p, end, sizeof end) && finish(p);
}

static int run_pub(const struct options *o) {
    struct publisher p = {.stream = NORM_OBJECT_INVALID, .last_object = NORM_OBJECT_INVALID};
    uint64_t sent = 0;
    open_node(&p.node, o);
    p.receivers = wait_for_receivers(&p.node, p.ids);
    for (unsigned i = 0; i < p.receivers; i++)
        if (!NormAddAckingNode(p.node.session, p.ids[i])) fail("NormAddAckingNode");
    start_sender(&p.node, o->segment_size);
    if (!o->data) {
        unsigned buffer = 2 * o->window + 2 * BLOCK_SEGMENTS * o->segment_size;
        p.stream = NormStreamOpen(p.node.session, buffer, NULL, 0);
        if (p.stream == NORM_OBJECT_INVALID) fail("NormStreamOpen");
        NormStreamSetAutoFlush(p.stream, NORM_FLUSH_NONE);
    }
    double cpu_start = cpu(), start = now();
    bool ok = publish(&p, &sent);
    double seconds = now() - start, used = cpu() - cpu_start, rate = (double)sent / seconds;
    if (interrupted) _exit(130);
    char failed[MAX_NODES * 16] = "";
    size_t length = 0;
    for (unsigned i = 0; i < p.receivers; i++)
        if (!ok && NormGetAckingStatus(p.node.session, p.ids[i]) != NORM_ACK_SUCCESS)
            length += (size_t)snprintf(failed + length, sizeof failed - length, "%s\"%u\"", length > 0 ? ", " : "",
                                       p.ids[i]);
    printf("{\"system\": \"libnorm\", \"object\": \"%s\", \"size\": %u, \"batch\": %u, \"receivers\": %u, "
           "\"not_acked\": [%s], \"messages\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"msgs_per_s\": %.1f, "
           "\"gbit_per_s\": %.6f, \"cpu_s\": %.3f, \"nacks\": null, \"repairs\": null, \"window_waits\": %llu}\n",
           o->data ? "data" : "stream", o->size, o->batch, p.receivers, failed, (unsigned long long)sent,
           (unsigned long long)(sent * o->size), seconds, rate, rate * o->size * 8e-9, used,
           (unsigned long long)p.waits);
    if (!ok) fprintf(stderr, "Error: libnorm: sending or confirmation: not done within %g s\n", o->timeout);
    NormStopSender(p.node.session);
    NormDestroySession(p.node.session);
    NormDestroyInstance(p.node.instance);
    return ok ? 0 : 1;
}

/* Subscribing. */

struct subscriber {
    struct node node;
    struct tally tally;
    unsigned char *buffer;
    size_t capacity, held;
    uint64_t unchecked, total, first_messages, sender_messages;
    bool started, ended;
    double first_at, last_at, first_cpu, last_cpu;
};

static void note_time(struct subscriber *s) {
    s->last_at = now();
    s->last_cpu = cpu();
    if (s->started) return;
    s->started = true;
    s->first_at = s->last_at;
    s->first_cpu = s->last_cpu;
    s->first_messages = s->node.o->verify ? s->tally.messages : s->unchecked / s->node.o->size;
}

static void end_with(struct subscriber *s, const unsigned char *at) {
    s->ended = true;
    s->total = get_word(at + 8);
}

/* Checks what lies in the buffer; what is left of a message stays at its beginning. */
static void check_buffer(struct subscriber *s) {
    const struct workload *w = &s->node.workload;
    size_t at = 0;
    while (!s->ended && s->held - at >= w->size) {
        if (get_word(s->buffer + at) == word_of(END_NUMBER)) break;
        if (s->node.o->verify) check_message(w, &s->tally, s->buffer + at);
        else s->unchecked += w->size;
        at += w->size;
    }
    bool is_end = s->held - at >= 8 && get_word(s->buffer + at) == word_of(END_NUMBER);
    if (at > 0) note_time(s);
    if (is_end && s->held - at >= END_BYTES) end_with(s, s->buffer + at);
    memmove(s->buffer, s->buffer + at, s->held - at);
    s->held -= at;
}

static void read_stream(struct subscriber *s, NormObjectHandle stream) {
    while (!s->ended) {
        unsigned length = (unsigned)(s->capacity - s->held);
        if (!NormStreamRead(stream, (char *)s->buffer + s->held, &length)) {
            /* A gap: read on with the next whole message. */
            s->held = 0;
            if (!NormStreamSeekMsgStart(stream)) return;
            continue;
        }
        if (length == 0) return;
        s->held += length;
        check_buffer(s);
    }
}

static void take_object(struct subscriber *s, NormObjectHandle object) {
    const unsigned char *bytes = (const unsigned char *)NormDataAccessData(object);
    size_t size = (size_t)NormObjectGetSize(object);
    if (size == END_BYTES && get_word(bytes) == word_of(END_NUMBER)) {
        end_with(s, bytes);
        return;
    }
    if (!s->node.o->verify) s->unchecked += size;
    else if (size == s->node.o->size) check_message(&s->node.workload, &s->tally, bytes);
    else s->tally.corrupt++;
    note_time(s);
}

static void subscriber_event(struct subscriber *s, const NormEvent *event) {
    if (event->type == NORM_RX_OBJECT_UPDATED && NormObjectGetType(event->object) == NORM_OBJECT_STREAM)
        read_stream(s, event->object);
    else if (event->type == NORM_RX_OBJECT_COMPLETED && NormObjectGetType(event->object) == NORM_OBJECT_DATA)
        take_object(s, event->object);
}

static void print_sub(const struct subscriber *s) {
    const struct options *o = s->node.o;
    const struct tally *t = &s->tally;
    uint64_t messages = o->verify ? t->messages : s->unchecked / o->size;
    uint64_t next = o->verify ? t->next : messages;
    uint64_t lost = t->missing_count + (s->ended && s->total > next ? s->total - next : 0);
    double seconds = s->last_at - s->first_at;
    double rate = seconds > 0 ? (double)(messages - s->first_messages) / seconds : 0;
    printf("{\"system\": \"libnorm\", \"size\": %u, \"ended\": %s, \"verified\": %s, \"messages\": %llu, "
           "\"bytes\": %llu, \"seconds\": %.6f, \"msgs_per_s\": %.1f, \"gbit_per_s\": %.6f, \"lost\": %llu, "
           "\"duplicated\": %llu, \"out_of_order\": %llu, \"corrupt\": %llu, \"cpu_s\": %.3f}\n",
           o->size, s->ended ? "true" : "false", o->verify ? "true" : "false", (unsigned long long)messages,
           (unsigned long long)(messages * o->size), seconds, rate, rate * o->size * 8e-9, (unsigned long long)lost,
           (unsigned long long)t->duplicated, (unsigned long long)t->out_of_order, (unsigned long long)t->corrupt,
           s->last_cpu - s->first_cpu);
}

static int run_sub(const struct options *o) {
    struct subscriber s = {.started = false};
    open_node(&s.node, o);
    s.capacity = 1 << 20;
    if (s.capacity < 2 * (size_t)o->size) s.capacity = 2 * (size_t)o->size;
    s.buffer = allocate(s.capacity);
    start_receiver(&s.node);
    printf("{\"ready\": true}\n");
    int file = hello_socket(&s.node, false);
    double hello_at = 0, end = s.node.deadline;
    bool done = false;
    while (!interrupted && now() < end) {
        NormEvent event;
        if (!s.started && now() >= hello_at) {
            say_hello(&s.node, file);
            hello_at = now() + HELLO_INTERVAL;
        }
        wait_for_event(&s.node, end);
        while (NormGetNextEvent(s.node.instance, &event, false)) subscriber_event(&s, &event);
        if (s.ended && !done) {
            done = true;
            end = now() + LINGER; /* to confirm it, as often as asked */
        }
    }
    if (interrupted) _exit(130);
    print_sub(&s);
    uint64_t messages = o->verify ? s.tally.messages : s.unchecked / o->size;
    NormStopReceiver(s.node.session);
    NormDestroySession(s.node.session);
    NormDestroyInstance(s.node.instance);
    return s.ended && messages == s.total && s.tally.corrupt == 0 && s.tally.duplicated == 0 ? 0 : 1;
}

/* Round trips: each end has a stream of its own. */

static NormObjectHandle open_pair(struct node *n) {
    start_receiver(n);
    start_sender(n, n->o->segment_size);
    NormObjectHandle stream = NormStreamOpen(n->session, 4 << 20, NULL, 0);
    if (stream == NORM_OBJECT_INVALID) fail("NormStreamOpen");
    NormStreamSetPushEnable(stream, true);
    NormStreamSetAutoFlush(stream, NORM_FLUSH_PASSIVE);
    return stream;
}

/* Reads what is there of the other's stream. The bytes read. */
static size_t read_some(struct node *n, unsigned char *at, size_t most) {
    NormEvent event;
    size_t taken = 0;
    while (taken < most && NormGetNextEvent(n->instance, &event, false)) {
        if (event.type != NORM_RX_OBJECT_UPDATED) continue;
        unsigned length;
        do {
            length = (unsigned)(most - taken);
            if (!NormStreamRead(event.object, (char *)at + taken, &length)) fail("the stream has a gap");
            taken += length;
        } while (length > 0 && taken < most);
    }
    return taken;
}

static void write_all(struct node *n, NormObjectHandle stream, const unsigned char *bytes, size_t size) {
    size_t written = 0;
    while (written < size && !is_over(n)) {
        written += NormStreamWrite(stream, (const char *)bytes + written, (unsigned)(size - written));
        if (written < size) wait_for_event(n, now() + 0.001);
    }
    NormStreamFlush(stream, true, NORM_FLUSH_PASSIVE);
}

static int run_ping(const struct options *o) {
    struct node n;
    uint32_t ids[MAX_NODES];
    size_t size = o->size, rounds = o->warm_up + o->count;
    open_node(&n, o);
    NormObjectHandle stream = open_pair(&n);
    wait_for_receivers(&n, ids);
    unsigned char *message = allocate(size), *back = allocate(size);
    double *times = allocate(rounds * sizeof *times);
    for (size_t i = 0; i < rounds; i++) {
        size_t got = 0;
        make_message(&n.workload, i, message);
        double start = now();
        write_all(&n, stream, message, size);
        while ((got += read_some(&n, back + got, size - got)) < size) {
            if (interrupted) _exit(130);
            if (is_over(&n)) fail("waiting for message %zu to come back: not done within %g s", i, o->timeout);
            wait_for_event(&n, n.deadline);
        }
        times[i] = now() - start;
        if (memcmp(message, back, size) != 0) fail("message %zu came back as another", i);
    }
    memset(message, 0, size);
    put_word(message, word_of(END_NUMBER));
    write_all(&n, stream, message, size);
    qsort(times + o->warm_up, o->count, sizeof *times, compare_times);
    const double *t = times + o->warm_up;
    printf("{\"system\": \"libnorm\", \"size\": %u, \"count\": %llu, \"p50_us\": %.3f, \"p99_us\": %.3f, "
           "\"p999_us\": %.3f, \"max_us\": %.3f}\n",
           o->size, (unsigned long long)o->count, at_part(t, o->count, 0.5), at_part(t, o->count, 0.99),
           at_part(t, o->count, 0.999), at_part(t, o->count, 1.0));
    double end = now() + LINGER;
    while (now() < end) wait_for_event(&n, end); /* so that the end arrives */
    NormDestroySession(n.session);
    NormDestroyInstance(n.instance);
    return 0;
}

static int run_echo(const struct options *o) {
    struct node n;
    size_t size = o->size, held = 0;
    uint64_t messages = 0;
    bool ended = false;
    open_node(&n, o);
    NormObjectHandle stream = open_pair(&n);
    unsigned char *message = allocate(size);
    printf("{\"ready\": true}\n");
    int file = hello_socket(&n, false);
    double hello_at = 0;
    while (!ended && !is_over(&n)) {
        if (messages == 0 && now() >= hello_at) {
            say_hello(&n, file);
            hello_at = now() + HELLO_INTERVAL;
        }
        wait_for_event(&n, n.deadline);
        for (size_t got; (got = read_some(&n, message + held, size - held)) > 0;) {
            held += got;
            if (held < size) continue;
            held = 0;
            ended = get_word(message) == word_of(END_NUMBER);
            if (ended) break;
            write_all(&n, stream, message, size);
            messages++;
        }
    }
    if (interrupted) _exit(130);
    printf("{\"system\": \"libnorm\", \"messages\": %llu}\n", (unsigned long long)messages);
    NormDestroySession(n.session);
    NormDestroyInstance(n.instance);
    return ended ? 0 : 1;
}

int main(int argc, char **argv) {
    struct options o = {
        .group = "239.192.57.40",
        .interface = "lo",
        .port = 5740,
        .size = 1024,
        .segment_size = 8000,
        .receivers = 1,
        .window = 8 << 20,
        .marks = 4,
        .batch = 1,
        .warm_up = 500,
        .rate = 40e9,
        .timeout = 60,
        .verify = true,
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(&o, argc, argv);
    if (o.count == 0 && o.seconds == 0) o.count = 5000;
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    /* Should libnorm not come back, the process ends all the same. */
    alarm((unsigned)(o.timeout + LINGER) + 5);
    switch (o.role) {
    case PUB: return run_pub(&o);
    case SUB: return run_sub(&o);
    case PING: return run_ping(&o);
    default: return run_echo(&o);
    }
}
