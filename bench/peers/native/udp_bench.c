/* Bare UDP multicast as fast as plain system calls go: sendmmsg and recvmmsg, 64 datagrams a call. Some may get lost.
 *
 *   udp_bench pub  --publisher A --group G --port P --interface IF --size B (--count N | --seconds S) [--receivers K]
 *                  [--timeout S]
 *   udp_bench sub  --publisher A --group G --port P --interface IF --size B [--no-verify] [--timeout S]
 *   udp_bench ping --publisher A --group G --port P --interface IF --size B [--count N] [--warm-up N] [--timeout S]
 *   udp_bench echo --publisher A --group G --port P --interface IF --size B [--timeout S]
 *
 * A message is a datagram if it fits; a larger message goes in pieces, each after its number. As in udp/adapter.py,
 * greetings and confirmations go to the publisher at the next port, and the end is multicast until all have confirmed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#define SYSTEM "udp-c"
#include "workload.h"

enum { BATCH = 64, DATAGRAM_BYTES = 65507, NUMBER_BYTES = 8, RECEIVE_BUFFER = 32 << 20 };
static const double TICK = 0.1, HELLO_INTERVAL = 0.4, END_INTERVAL = 0.01, LOST_AFTER = 0.2, LINGER = 0.1;
static const char HELLO[] = "hello", DONE[] = "done";

/* Sockets. */

struct node {
    const struct options *o;
    struct workload workload;
    struct sockaddr_in group, control; /* destinations of messages, and of greetings and confirmations */
    size_t pieces, piece_bytes;
    double deadline;
};

static void open_node(struct node *n, const struct options *o) {
    n->o = o;
    n->deadline = now() + o->timeout;
    n->pieces = 1;
    n->piece_bytes = o->size;
    if (o->size > DATAGRAM_BYTES) {
        n->piece_bytes = DATAGRAM_BYTES - NUMBER_BYTES;
        n->pieces = (o->size + n->piece_bytes - 1) / n->piece_bytes;
    }
    make_patterns(&n->workload, o->size);
    n->group = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)o->port)};
    n->control = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)(o->port + 1))};
    if (inet_pton(AF_INET, o->group, &n->group.sin_addr) != 1) fail("%s: no group", o->group);
    if (inet_pton(AF_INET, o->publisher, &n->control.sin_addr) != 1) fail("%s: no address", o->publisher);
}

static int open_socket(void) {
    int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (file < 0) fail("socket: %s", strerror(errno));
    return file;
}

static void set_wait(int file, double seconds) {
    struct timeval t = {.tv_sec = (time_t)seconds, .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
}

static int open_outlet(const struct node *n) {
    int file = open_socket(), loops = ntohl(n->control.sin_addr.s_addr) >> 24 == 127, ttl = loops ? 0 : 1;
    setsockopt(file, IPPROTO_IP, IP_MULTICAST_IF, &n->control.sin_addr, sizeof n->control.sin_addr);
    setsockopt(file, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof ttl);
    setsockopt(file, IPPROTO_IP, IP_MULTICAST_LOOP, &loops, sizeof loops);
    if (connect(file, (const struct sockaddr *)&n->group, sizeof n->group) != 0) fail("connect: %s", strerror(errno));
    return file;
}

static int open_inlet(const struct node *n) {
    int file = open_socket(), one = 1, bytes = RECEIVE_BUFFER;
    struct ip_mreqn membership = {.imr_multiaddr = n->group.sin_addr};
    if (inet_pton(AF_INET, n->o->interface, &membership.imr_address) != 1)
        membership.imr_ifindex = (int)if_nametoindex(n->o->interface);
    setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (setsockopt(file, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0)
        setsockopt(file, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (bind(file, (const struct sockaddr *)&n->group, sizeof n->group) != 0 ||
        setsockopt(file, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) != 0)
        fail("%s port %u at %s: %s", n->o->group, n->o->port, n->o->interface, strerror(errno));
    set_wait(file, TICK);
    return file;
}

static int open_answers(const struct node *n) {
    int file = open_socket();
    if (bind(file, (const struct sockaddr *)&n->control, sizeof n->control) != 0)
        fail("%s port %u: %s", n->o->publisher, n->o->port + 1, strerror(errno));
    return file;
}

static bool is_over(const struct node *n) {
    if (interrupted) _exit(130);
    return now() >= n->deadline;
}

/* Waits until `count` processes have sent `word`. Meanwhile it sends `end` by the socket `remind`, if not negative. */
static void count_to(const struct node *n, int answers, const char *word, unsigned count, const char *what, int remind,
                     const unsigned char *end) {
    struct sockaddr_in seen[MAX_NODES], from;
    unsigned known = 0;
    set_wait(answers, remind < 0 ? TICK : END_INTERVAL);
    while (known < count) {
        char said[64];
        socklen_t length = sizeof from;
        if (is_over(n)) fail("waiting for %s, %u of %u are there: not done within %g s", what, known, count, n->o->timeout);
        if (remind >= 0) send(remind, end, END_BYTES, 0);
        ssize_t size = recvfrom(answers, said, sizeof said, 0, (struct sockaddr *)&from, &length);
        if (size != (ssize_t)strlen(word) || memcmp(said, word, (size_t)size) != 0) continue;
        unsigned i = 0;
        while (i < known && (seen[i].sin_port != from.sin_port || seen[i].sin_addr.s_addr != from.sin_addr.s_addr)) i++;
        if (i == known) seen[known++] = from;
    }
}

static void tell(const struct node *n, int teller, const char *word) {
    sendto(teller, word, strlen(word), 0, (const struct sockaddr *)&n->control, sizeof n->control);
}

/* Announces this process until something arrives. */
static void await_first(const struct node *n, int inlet, int teller) {
    struct pollfd descriptor = {.fd = inlet, .events = POLLIN};
    while (!is_over(n)) {
        tell(n, teller, HELLO);
        if (poll(&descriptor, 1, (int)(HELLO_INTERVAL * 1000)) > 0) return;
    }
}

static bool is_end(const unsigned char *at, size_t size) {
    return size == END_BYTES && get_word(at) == word_of(END_NUMBER);
}

/* Throughput. */

struct out {
    struct mmsghdr headers[BATCH];
    struct iovec parts[BATCH][2];
    unsigned char heads[BATCH][2 * NUMBER_BYTES];
};

/* Fills a slot with a datagram: a piece of a message. Only its first bytes have to be written. */
static void fill(const struct node *n, struct out *out, unsigned slot, uint64_t message, size_t piece) {
    const struct workload *w = &n->workload;
    unsigned char *head = out->heads[slot];
    size_t at = piece * n->piece_bytes, end = at + n->piece_bytes < w->size ? at + n->piece_bytes : w->size, used = 0;
    if (n->pieces > 1) {
        put_word(head, message * n->pieces + piece);
        used = NUMBER_BYTES;
    }
    if (piece == 0) {
        put_word(head + used, word_of(message));
        used += 8;
        at = 8;
    }
    out->parts[slot][0] = (struct iovec){head, used};
    out->parts[slot][1] = (struct iovec){w->patterns + message % PATTERNS * w->rest + at - 8, end - at};
    out->headers[slot].msg_hdr.msg_iov = out->parts[slot];
    out->headers[slot].msg_hdr.msg_iovlen = 2;
}

static void send_all(int file, struct out *out, unsigned count) {
    unsigned sent = 0;
    while (sent < count) {
        int some = sendmmsg(file, out->headers + sent, count - sent, 0);
        if (some < 0 && errno != EINTR && errno != ENOBUFS) fail("sendmmsg: %s", strerror(errno));
        if (some < 0 && interrupted) _exit(130);
        if (some > 0) sent += (unsigned)some;
    }
}

static int run_pub(const struct options *o) {
    struct node n;
    struct out *out = allocate(sizeof *out);
    open_node(&n, o);
    int answers = open_answers(&n), outlet = open_outlet(&n);
    count_to(&n, answers, HELLO, o->receivers, "subscribers", -1, NULL);
    double cpu_start = cpu(), start = now(), until = start + o->seconds;
    uint64_t messages = 0;
    unsigned held = 0;
    while ((o->seconds > 0 ? now() < until : messages < o->count) && !is_over(&n))
        for (unsigned i = 0; i < BATCH && (o->seconds > 0 || messages < o->count); i++, messages++)
            for (size_t piece = 0; piece < n.pieces; piece++) {
                fill(&n, out, held++, messages, piece);
                if (held < BATCH) continue;
                send_all(outlet, out, held);
                held = 0;
            }
    send_all(outlet, out, held);
    double seconds = now() - start, used = cpu() - cpu_start;
    unsigned char end[END_BYTES];
    put_word(end, word_of(END_NUMBER));
    put_word(end + 8, messages);
    count_to(&n, answers, DONE, o->receivers, "confirmations", outlet, end);
    print_pub(o, "datagram", "", messages, seconds, used, "null");
    return 0;
}

struct subscriber {
    struct node node;
    struct reception got;
    unsigned char *message; /* the message that is being put together from pieces */
    uint64_t next_number;
};

static void take(struct subscriber *s, const unsigned char *at, size_t size) {
    if (!s->node.o->verify) s->got.unchecked++;
    else if (size == s->node.workload.size) check_message(&s->node.workload, &s->got.tally, at);
    else s->got.tally.corrupt++;
}

static void take_piece(struct subscriber *s, const unsigned char *at, size_t size) {
    const struct node *n = &s->node;
    uint64_t number = get_word(at);
    size_t piece = number % n->pieces, start = piece * n->piece_bytes, length = size - NUMBER_BYTES;
    if (piece > 0 && number != s->next_number) return; /* a piece of a message that is lost */
    if (start + length > n->workload.size) {
        s->got.tally.corrupt++;
        return;
    }
    memcpy(s->message + start, at + NUMBER_BYTES, length);
    s->next_number = number + 1;
    if (piece + 1 == n->pieces) take(s, s->message, start + length);
}

static void receive(struct subscriber *s, int inlet) {
    struct mmsghdr *headers = allocate(BATCH * sizeof *headers);
    struct iovec *parts = allocate(BATCH * sizeof *parts);
    unsigned char *buffers = allocate(BATCH << 16);
    for (unsigned i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){buffers + ((size_t)i << 16), 1 << 16};
        headers[i].msg_hdr.msg_iov = parts + i;
        headers[i].msg_hdr.msg_iovlen = 1;
    }
    while (!s->got.ended && !is_over(&s->node)) {
        int count = recvmmsg(inlet, headers, BATCH, MSG_WAITFORONE, NULL);
        for (int i = 0; i < count && !s->got.ended; i++) {
            const unsigned char *at = parts[i].iov_base;
            if (is_end(at, headers[i].msg_len)) {
                s->got.ended = true;
                s->got.total = get_word(at + 8);
            } else if (s->node.pieces == 1) {
                take(s, at, headers[i].msg_len);
            } else if (headers[i].msg_len > NUMBER_BYTES) {
                take_piece(s, at, headers[i].msg_len);
            }
        }
        if (count > 0 && !s->got.ended) note_time(s->node.o, &s->got);
    }
    if (s->got.started) s->got.last_cpu = cpu();
}

static int run_sub(const struct options *o) {
    struct subscriber s = {.next_number = 0};
    open_node(&s.node, o);
    s.message = allocate(o->size);
    int inlet = open_inlet(&s.node), teller = open_socket();
    print_ready();
    await_first(&s.node, inlet, teller);
    receive(&s, inlet);
    double linger = now() + LINGER;
    while (s.got.ended && now() < linger) {
        tell(&s.node, teller, DONE);
        usleep((useconds_t)(LINGER * 1e5));
    }
    print_sub(o, &s.got);
    return s.got.ended ? 0 : 1;
}

/* Round trips: a datagram each way. A datagram that does not come back is left out. */

static int run_ping(const struct options *o) {
    struct node n;
    open_node(&n, o);
    if (n.pieces > 1) fail("messages of %u B: a datagram holds %d", o->size, DATAGRAM_BYTES);
    size_t rounds = o->warm_up + o->count, back = 0;
    unsigned char *message = allocate(o->size), *answer = allocate(1 << 16), end[END_BYTES] = {0};
    double *times = allocate(rounds * sizeof *times);
    int answers = open_answers(&n), outlet = open_outlet(&n);
    count_to(&n, answers, HELLO, 1, "an echo", -1, NULL);
    set_wait(answers, LOST_AFTER);
    for (size_t i = 0; i < rounds; i++) {
        make_message(&n.workload, i, message);
        double start = now();
        send(outlet, message, o->size, 0);
        ssize_t size;
        while ((size = recv(answers, answer, 1 << 16, 0)) >= 0 &&
               (size != (ssize_t)o->size || memcmp(message, answer, o->size) != 0)) continue;
        if (size >= 0 && i >= o->warm_up) times[back++] = now() - start;
        if (is_over(&n)) fail("waiting for messages to come back: not done within %g s", o->timeout);
    }
    put_word(end, word_of(END_NUMBER));
    send(outlet, end, sizeof end, 0);
    if (back == 0) fail("nothing came back");
    print_ping(o, times, back);
    return 0;
}

static int run_echo(const struct options *o) {
    struct node n;
    open_node(&n, o);
    unsigned char *message = allocate(1 << 16);
    uint64_t messages = 0;
    int inlet = open_inlet(&n), teller = open_socket();
    bool ended = false;
    print_ready();
    await_first(&n, inlet, teller);
    while (!ended && !is_over(&n)) {
        ssize_t size = recv(inlet, message, 1 << 16, 0);
        if (size < 0) continue;
        ended = is_end(message, (size_t)size);
        if (ended) break;
        sendto(teller, message, (size_t)size, 0, (const struct sockaddr *)&n.control, sizeof n.control);
        messages++;
    }
    print_echo(messages);
    return ended ? 0 : 1;
}

int main(int argc, char **argv) {
    struct options o = begin(argc, argv);
    switch (o.role) {
    case PUB: return run_pub(&o);
    case SUB: return run_sub(&o);
    case PING: return run_ping(&o);
    default: return run_echo(&o);
    }
}
