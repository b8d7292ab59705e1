/* NRL's libnorm as a peer of the benchmarks: publisher, subscriber, ping and echo on its public API.
 *
 *   libnorm_bench pub  --group G --port P --interface IF --size B (--count N | --seconds S) [--object stream|data]
 *                      [--receivers K] [--rate BITS_PER_S] [--segment-size N] [--batch N] [--timeout S]
 *   libnorm_bench sub  --group G --port P --interface IF --size B [--segment-size N] [--no-verify] [--timeout S]
 *   libnorm_bench ping --group G --port P --interface IF --size B [--count N] [--warm-up N] [--timeout S]
 *   libnorm_bench echo --group G --port P --interface IF --size B [--timeout S]
 *
 * Subscribers make themselves known by plain datagrams to the group at the next port, as a libnorm receiver can't send
 * commands. Flow control is by positive acknowledgement: the publisher is never more than a window ahead of the last
 * watermark confirmed by all.
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

enum { SOCKET_BUFFER = 8 << 20, BUFFER_SPACE = 64 << 20, OBJECTS = 64, BLOCK_SEGMENTS = 64 };
enum { WINDOW = 8 << 20, MARKS = 4 }; /* bytes that may be unconfirmed, and watermarks in each window */
static const double TICK = 0.1, HELLO_INTERVAL = 0.4, LINGER = 1.0;
static const char MAGIC[8] = {'f', 'j', 'm', '2', 'b', 'n', 'c', 'h'};

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
    /* Between hosts, no sender needs to hear itself, and hearing costs time. */
    if (!NormSetMulticastLoopback(n->session, local)) fail("NormSetMulticastLoopback");
    /* Send large segments in fragments: otherwise the kernel refuses them, and libnorm tries for ever. */
    if (!NormSetFragmentation(n->session, true)) fail("NormSetFragmentation");
    /* The estimate is fixed. Probes would wait behind data in receivers' buffers and make it grow, and confirmations,
     * which are requested at its pace, would come later. */
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

/* Waits for an event of libnorm until `deadline`, but never longer than a tick. */
static void wait_for_event(const struct node *n, double deadline) {
    double left = deadline - now();
    if (left > TICK) left = TICK;
    struct pollfd descriptor = {.fd = NormGetDescriptor(n->instance), .events = POLLIN};
    if (left > 0) poll(&descriptor, 1, (int)(left * 1000) + 1);
}

static bool is_over(const struct node *n) {
    return interrupted || now() >= n->deadline;
}

/* Announcements: datagrams with a magic and a node id, to the group at the port after the session's. */

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
    bool is_data; /* each message is an object, instead of a part of a stream */
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
            /* Receivers that did not answer are asked again, so that nothing is lost. */
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

/* Waits until `size` more bytes fit into the window. Returns false if the time is over before. */
static bool wait_for_window(struct publisher *p, size_t size) {
    uint64_t window = WINDOW > 2 * size ? WINDOW : 2 * size;
    if (p->receivers == 0) return true;
    if (!p->pending && p->given - p->marked >= window / MARKS) mark(p);
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
    size_t buffers = p->is_data ? OBJECTS : 1, batch = p->is_data ? 1 : o->batch;
    unsigned char *ring = allocate(buffers * batch * o->size), end[END_BYTES];
    double until = o->seconds > 0 ? now() + o->seconds : 0;
    uint64_t most = o->seconds > 0 ? UINT64_MAX : o->count;
    while (*sent < most) {
        unsigned char *at = ring + *sent / batch % buffers * batch * o->size;
        uint64_t some = most - *sent < batch ? most - *sent : batch;
        for (uint64_t i = 0; i < some; i++) make_message(w, *sent + i, at + i * o->size);
        if (!(p->is_data ? write_object(p, at, o->size) : write_stream(p, at, some * o->size))) return false;
        *sent += some;
        if (until > 0 && (*sent / batch % 32 == 0 || o->size > 16384) && now() >= until) break;
    }
    memset(end, 0, sizeof end);
    put_word(end, word_of(END_NUMBER));
    put_word(end + 8, *sent);
    return p->is_data ? write_object(p, end, sizeof end) && finish(p) : write_stream(p, end, sizeof end) && finish(p);
}

static int run_pub(const struct options *o) {
    struct publisher p = {.is_data = strcmp(o->object, "data") == 0, .stream = NORM_OBJECT_INVALID, .last_object = NORM_OBJECT_INVALID};
    uint64_t sent = 0;
    open_node(&p.node, o);
    p.receivers = wait_for_receivers(&p.node, p.ids);
    for (unsigned i = 0; i < p.receivers; i++)
        if (!NormAddAckingNode(p.node.session, p.ids[i])) fail("NormAddAckingNode");
    start_sender(&p.node, o->segment_size);
    if (!p.is_data) {
        unsigned buffer = 2 * WINDOW + 2 * BLOCK_SEGMENTS * o->segment_size;
        p.stream = NormStreamOpen(p.node.session, buffer, NULL, 0);
        if (p.stream == NORM_OBJECT_INVALID) fail("NormStreamOpen");
        NormStreamSetAutoFlush(p.stream, NORM_FLUSH_NONE);
    }
    double cpu_start = cpu(), start = now();
    bool ok = publish(&p, &sent);
    double seconds = now() - start, used = cpu() - cpu_start;
    if (interrupted) _exit(130);
    char failed[MAX_NODES * 16] = "", waits[32];
    size_t length = 0;
    for (unsigned i = 0; i < p.receivers; i++)
        if (!ok && NormGetAckingStatus(p.node.session, p.ids[i]) != NORM_ACK_SUCCESS)
            length += (size_t)snprintf(failed + length, sizeof failed - length, "%s\"%u\"", length > 0 ? ", " : "",
                                       p.ids[i]);
    snprintf(waits, sizeof waits, "%llu", (unsigned long long)p.waits);
    print_pub(o, p.is_data ? "data" : "stream", failed, sent, seconds, used, waits);
    if (!ok) fprintf(stderr, "Error: libnorm: sending or confirmation: not done within %g s\n", o->timeout);
    NormStopSender(p.node.session);
    NormDestroySession(p.node.session);
    NormDestroyInstance(p.node.instance);
    return ok ? 0 : 1;
}

/* Subscribing. */

struct subscriber {
    struct node node;
    struct reception got;
    unsigned char *buffer;
    size_t capacity, held;
};

static void end_with(struct subscriber *s, const unsigned char *at) {
    s->got.ended = true;
    s->got.total = get_word(at + 8);
}

/* Checks the messages in the buffer. The part of an incomplete message moves to the buffer's beginning. */
static void check_buffer(struct subscriber *s) {
    const struct workload *w = &s->node.workload;
    size_t at = 0;
    while (!s->got.ended && s->held - at >= w->size) {
        if (get_word(s->buffer + at) == word_of(END_NUMBER)) break;
        if (s->node.o->verify) check_message(w, &s->got.tally, s->buffer + at);
        else s->got.unchecked++;
        at += w->size;
    }
    bool is_end = s->held - at >= 8 && get_word(s->buffer + at) == word_of(END_NUMBER);
    if (at > 0) note_time(s->node.o, &s->got);
    s->got.last_cpu = cpu();
    if (is_end && s->held - at >= END_BYTES) end_with(s, s->buffer + at);
    memmove(s->buffer, s->buffer + at, s->held - at);
    s->held -= at;
}

static void read_stream(struct subscriber *s, NormObjectHandle stream) {
    while (!s->got.ended) {
        unsigned length = (unsigned)(s->capacity - s->held);
        if (!NormStreamRead(stream, (char *)s->buffer + s->held, &length)) {
            /* There is a gap: read on with the next whole message. */
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
    if (!s->node.o->verify) s->got.unchecked++;
    else if (size == s->node.o->size) check_message(&s->node.workload, &s->got.tally, bytes);
    else s->got.tally.corrupt++;
    note_time(s->node.o, &s->got);
    s->got.last_cpu = cpu();
}

static void subscriber_event(struct subscriber *s, const NormEvent *event) {
    if (event->type == NORM_RX_OBJECT_UPDATED && NormObjectGetType(event->object) == NORM_OBJECT_STREAM)
        read_stream(s, event->object);
    else if (event->type == NORM_RX_OBJECT_COMPLETED && NormObjectGetType(event->object) == NORM_OBJECT_DATA)
        take_object(s, event->object);
}

static int run_sub(const struct options *o) {
    struct subscriber s = {.held = 0};
    open_node(&s.node, o);
    s.capacity = 1 << 20;
    if (s.capacity < 2 * (size_t)o->size) s.capacity = 2 * (size_t)o->size;
    s.buffer = allocate(s.capacity);
    start_receiver(&s.node);
    print_ready();
    int file = hello_socket(&s.node, false);
    double hello_at = 0, end = s.node.deadline;
    bool done = false;
    while (!interrupted && now() < end) {
        NormEvent event;
        if (!s.got.started && now() >= hello_at) {
            say_hello(&s.node, file);
            hello_at = now() + HELLO_INTERVAL;
        }
        wait_for_event(&s.node, end);
        while (NormGetNextEvent(s.node.instance, &event, false)) subscriber_event(&s, &event);
        if (s.got.ended && !done) {
            done = true;
            end = now() + LINGER; /* to confirm the end as often as it is asked for */
        }
    }
    if (interrupted) _exit(130);
    print_sub(o, &s.got);
    NormStopReceiver(s.node.session);
    NormDestroySession(s.node.session);
    NormDestroyInstance(s.node.instance);
    return s.got.ended && messages_of(o, &s.got) == s.got.total && s.got.tally.corrupt == 0 && s.got.tally.duplicated == 0 ? 0 : 1;
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

/* Reads the bytes that have arrived of the other end's stream. Returns their number. */
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
    print_ping(o, times + o->warm_up, o->count);
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
    print_ready();
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
    print_echo(messages);
    NormDestroySession(n.session);
    NormDestroyInstance(n.instance);
    return ended ? 0 : 1;
}

int main(int argc, char **argv) {
    struct options o = begin(argc, argv);
    /* The process ends even if a call of libnorm does not return. */
    alarm((unsigned)(o.timeout + LINGER) + 5);
    switch (o.role) {
    case PUB: return run_pub(&o);
    case SUB: return run_sub(&o);
    case PING: return run_ping(&o);
    default: return run_echo(&o);
    }
}
