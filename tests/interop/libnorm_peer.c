/* The other end of the interoperability tests: a NORM sender or receiver on libnorm's public API.
 *
 *   libnorm_peer send --group G --port P --interface IF --node-id ID [--segment-size N] [--block-size N] [--parity N]
 *                     [--auto-parity N] [--rate BITS_PER_S] [--cc] [--grtt S] [--robust N] [--ack-from ID,...]
 *                     [--instance-id N] [--fec 2|5|129] [--start-delay S] [--stream-buffer BYTES] [--ttl N]
 *                     [--timeout S] (--data FILE... | --file FILE... | --stream FILE)
 *   libnorm_peer recv --group G --port P --interface IF --node-id ID --out DIR [--unicast-nack]
 *                     [--sync current|stream|all] [--count N] [--ttl N] [--timeout S]
 *
 * Both print lines of JSON: one when ready, one at the end. Exit status: 0 all done, 1 not, 2 wrong arguments.
 */

/* Two declarations of normApi.h are C++ only (a reference, a default argument) although the header means to serve C.
 * Neither function is used here; as macros their declarations turn into harmless ones. */
#define NormGetRxBindAddress(session, address, length, port) NormPeerUnusedA(void)
#define NormStreamGetVacancy(stream, wanted) NormPeerUnusedB(void)
#include <normApi.h>
#undef NormGetRxBindAddress
#undef NormStreamGetVacancy

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_NODES = 64, PATH_SIZE = 1024, INFO_SIZE = 512 };
enum { BUFFER_SPACE = 16 * 1024 * 1024, SOCKET_BUFFER = 4 * 1024 * 1024 };
static const double LINGER = 1.0; /* seconds a receiver goes on answering when it has everything */
static const double TICK = 0.1;   /* longest wait before the deadline is looked at again */

enum content { NOTHING, DATA, FILES, STREAM };

struct options {
    bool sender;
    const char *group, *interface;
    unsigned port, node_id;
    int ttl; /* < 0: 0 on the loopback interface, else 1 */
    double timeout;
    /* send */
    unsigned segment_size, block_size, parity, auto_parity, fec_id, instance_id, stream_buffer;
    double rate, grtt, start_delay;
    int robust; /* < 0: libnorm's default */
    bool cc;
    unsigned ack_from[MAX_NODES];
    int ack_count;
    enum content content;
    char **paths;
    int path_count;
    /* recv */
    const char *out;
    bool unicast_nack;
    NormSyncPolicy sync;
    unsigned count;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
    (void)number;
    interrupted = 1;
}

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("libnorm_peer: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(2);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Arguments. */

static double number(const char *option, const char *text) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(value >= 0)) fail("%s: not a number: %s", option, text);
    return value;
}

static unsigned integer(const char *option, const char *text, unsigned long most) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 0);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || value > most)
        fail("%s: not an integer up to %lu: %s", option, most, text);
    return (unsigned)value;
}

static void node_list(struct options *o, const char *text) {
    char *copy = strdup(text), *rest = copy;
    if (copy == NULL) fail("out of memory");
    for (char *item; (item = strsep(&rest, ",")) != NULL;) {
        if (o->ack_count == MAX_NODES) fail("--ack-from: more than %d nodes", MAX_NODES);
        o->ack_from[o->ack_count++] = integer("--ack-from", item, UINT32_MAX);
    }
    free(copy);
}

static NormSyncPolicy sync_policy(const char *text) {
    if (strcmp(text, "current") == 0) return NORM_SYNC_CURRENT;
    if (strcmp(text, "stream") == 0) return NORM_SYNC_STREAM;
    if (strcmp(text, "all") == 0) return NORM_SYNC_ALL;
    fail("--sync: %s", text);
}

static bool sender_option(struct options *o, const char *name, const char *value) {
    if (strcmp(name, "--segment-size") == 0) o->segment_size = integer(name, value, 65000);
    else if (strcmp(name, "--block-size") == 0) o->block_size = integer(name, value, 65535);
    else if (strcmp(name, "--parity") == 0) o->parity = integer(name, value, 65535);
    else if (strcmp(name, "--auto-parity") == 0) o->auto_parity = integer(name, value, 255);
    else if (strcmp(name, "--fec") == 0) o->fec_id = integer(name, value, 255);
    else if (strcmp(name, "--instance-id") == 0) o->instance_id = integer(name, value, 65535);
    else if (strcmp(name, "--stream-buffer") == 0) o->stream_buffer = integer(name, value, 1u << 30);
    else if (strcmp(name, "--rate") == 0) o->rate = number(name, value);
    else if (strcmp(name, "--grtt") == 0) o->grtt = number(name, value);
    else if (strcmp(name, "--start-delay") == 0) o->start_delay = number(name, value);
    else if (strcmp(name, "--robust") == 0) o->robust = (int)integer(name, value, 1000);
    else if (strcmp(name, "--ack-from") == 0) node_list(o, value);
    else return false;
    return true;
}

static bool receiver_option(struct options *o, const char *name, const char *value) {
    if (strcmp(name, "--out") == 0) o->out = value;
    else if (strcmp(name, "--sync") == 0) o->sync = sync_policy(value);
    else if (strcmp(name, "--count") == 0) o->count = integer(name, value, 1000000);
    else return false;
    return true;
}

static bool common_option(struct options *o, const char *name, const char *value) {
    if (strcmp(name, "--group") == 0) o->group = value;
    else if (strcmp(name, "--interface") == 0) o->interface = value;
    else if (strcmp(name, "--port") == 0) o->port = integer(name, value, 65535);
    else if (strcmp(name, "--node-id") == 0) o->node_id = integer(name, value, UINT32_MAX - 1);
    else if (strcmp(name, "--ttl") == 0) o->ttl = (int)integer(name, value, 255);
    else if (strcmp(name, "--timeout") == 0) o->timeout = number(name, value);
    else return false;
    return true;
}

static enum content content_option(const char *name) {
    if (strcmp(name, "--data") == 0) return DATA;
    if (strcmp(name, "--file") == 0) return FILES;
    if (strcmp(name, "--stream") == 0) return STREAM;
    return NOTHING;
}

static void parse(struct options *o, int argc, char **argv) {
    if (argc < 2) fail("send or recv?");
    if (strcmp(argv[1], "send") == 0) o->sender = true;
    else if (strcmp(argv[1], "recv") != 0) fail("send or recv, not %s", argv[1]);
    for (int i = 2; i < argc;) {
        const char *name = argv[i++];
        enum content content = o->sender ? content_option(name) : NOTHING;
        if (content != NOTHING) {
            if (o->content != NOTHING) fail("one of --data, --file, --stream");
            o->content = content;
            o->paths = argv + i;
            while (i < argc && strncmp(argv[i], "--", 2) != 0) i++, o->path_count++;
            continue;
        }
        if (o->sender && strcmp(name, "--cc") == 0) {
            o->cc = true;
            continue;
        }
        if (!o->sender && strcmp(name, "--unicast-nack") == 0) {
            o->unicast_nack = true;
            continue;
        }
        if (i == argc) fail("%s: unknown, or lacks its value", name);
        const char *value = argv[i++];
        if (!common_option(o, name, value) &&
            !(o->sender ? sender_option(o, name, value) : receiver_option(o, name, value)))
            fail("%s: unknown", name);
    }
    if (o->group == NULL || o->port == 0 || o->interface == NULL || o->node_id == 0)
        fail("--group, --port, --interface and --node-id are needed");
    if (o->sender && (o->path_count == 0 || (o->content == STREAM && o->path_count != 1)))
        fail("--data FILE..., --file FILE... or --stream FILE is needed");
    if (!o->sender && o->out == NULL) fail("--out is needed");
}

/* libnorm wants the name of the interface. */
static const char *interface_name(const char *name_or_address) {
    static char found[64];
    struct in_addr wanted;
    if (inet_pton(AF_INET, name_or_address, &wanted) != 1) return name_or_address;
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) fail("getifaddrs: %s", strerror(errno));
    for (struct ifaddrs *a = all; a != NULL; a = a->ifa_next) {
        if (a->ifa_addr == NULL || a->ifa_addr->sa_family != AF_INET) continue;
        if (((struct sockaddr_in *)a->ifa_addr)->sin_addr.s_addr != wanted.s_addr) continue;
        snprintf(found, sizeof found, "%s", a->ifa_name);
    }
    freeifaddrs(all);
    if (found[0] == '\0') fail("no interface has the address %s", name_or_address);
    return found;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static char *load(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    struct stat status;
    if (file == NULL || fstat(fileno(file), &status) != 0) fail("%s: %s", path, strerror(errno));
    *size = (size_t)status.st_size;
    char *bytes = malloc(*size + 1);
    if (bytes == NULL || fread(bytes, 1, *size, file) != *size) fail("%s: cannot be read", path);
    fclose(file);
    return bytes;
}

/* Waits for something from libnorm, no longer than until `deadline` and never longer than a tick. */
static void wait_for_event(NormInstanceHandle instance, double deadline) {
    double left = deadline - now();
    if (left > TICK) left = TICK;
    struct pollfd descriptor = {.fd = NormGetDescriptor(instance), .events = POLLIN};
    if (left > 0) poll(&descriptor, 1, (int)(left * 1000) + 1);
}

static NormSessionHandle open_session(NormInstanceHandle instance, const struct options *o) {
    NormSessionHandle session = NormCreateSession(instance, o->group, (UINT16)o->port, o->node_id);
    if (session == NORM_SESSION_INVALID) fail("NormCreateSession %s/%u", o->group, o->port);
    const char *interface = interface_name(o->interface);
    int ttl = o->ttl >= 0 ? o->ttl : strcmp(interface, "lo") == 0 ? 0 : 1;
    NormSetRxPortReuse(session, true, NULL, NULL, 0);
    if (!NormSetMulticastInterface(session, interface)) fail("NormSetMulticastInterface %s", interface);
    if (!NormSetTTL(session, (unsigned char)ttl)) fail("NormSetTTL");
    if (!NormSetMulticastLoopback(session, true)) fail("NormSetMulticastLoopback");
    return session;
}

/* Sending. */

struct sender {
    const struct options *o;
    NormInstanceHandle instance;
    NormSessionHandle session;
    double deadline;
    int given;             /* files handed over, or messages */
    unsigned long long bytes;
    char *contents;        /* of the stream */
    size_t size, written;
    bool all_given, flushed, marked, watermark_done;
    NormObjectHandle last;
};

static bool give_stream(struct sender *s) {
    while (s->written < s->size) {
        char *line = s->contents + s->written;
        char *newline = memchr(line, '\n', s->size - s->written);
        size_t length = newline == NULL ? s->size - s->written : (size_t)(newline - line) + 1;
        unsigned taken = NormStreamWrite(s->last, line, (unsigned)length);
        s->written += taken;
        s->bytes += taken;
        if (taken < length) return false; /* the buffer is full; what is left of the line is tried again */
        NormStreamMarkEom(s->last);
        s->given++;
    }
    NormStreamClose(s->last, true);
    return true;
}

static bool give_objects(struct sender *s) {
    const struct options *o = s->o;
    while (s->given < o->path_count) {
        const char *path = o->paths[s->given];
        NormObjectHandle object;
        size_t size = 0;
        if (o->content == FILES) {
            const char *info = base_name(path);
            object = NormFileEnqueue(s->session, path, info, (unsigned)strlen(info));
            if (object != NORM_OBJECT_INVALID) size = (size_t)NormObjectGetSize(object);
        } else {
            char *bytes = load(path, &size); /* libnorm reads from it until the end of the session */
            object = NormDataEnqueue(s->session, bytes, (UINT32)size, NULL, 0);
            if (object == NORM_OBJECT_INVALID) free(bytes);
        }
        if (object == NORM_OBJECT_INVALID) return false;
        s->last = object;
        s->bytes += size;
        s->given++;
    }
    return true;
}

/* Hands over as much as libnorm takes, and after the last of it asks for the acknowledgements. */
static void give(struct sender *s) {
    if (s->all_given) return;
    if (!(s->o->content == STREAM ? give_stream(s) : give_objects(s))) return;
    s->all_given = true;
    if (s->o->ack_count > 0) {
        if (!NormSetWatermark(s->session, s->last, false)) fail("NormSetWatermark");
        s->marked = true;
    }
}

static void sender_event(struct sender *s, const NormEvent *event) {
    switch (event->type) {
    case NORM_TX_QUEUE_VACANCY:
    case NORM_TX_QUEUE_EMPTY:
        give(s);
        break;
    case NORM_TX_FLUSH_COMPLETED:
        s->flushed = s->all_given;
        break;
    case NORM_TX_WATERMARK_COMPLETED:
        s->watermark_done = s->marked;
        break;
    default:
        break;
    }
}

static void start_sender(struct sender *s) {
    const struct options *o = s->o;
    unsigned objects = o->path_count > 256 ? (unsigned)o->path_count : 256;
    NormSetTxCacheBounds(s->session, (NormSize)1 << 30, objects, objects);
    if (o->grtt > 0) NormSetGrttEstimate(s->session, o->grtt);
    if (o->robust >= 0) NormSetTxRobustFactor(s->session, o->robust);
    NormSetTxRate(s->session, o->rate);
    if (o->cc) {
        NormSetCongestionControl(s->session, true, true);
        NormSetTxRateBounds(s->session, -1.0, o->rate);
    }
    for (int i = 0; i < o->ack_count; i++)
        if (!NormAddAckingNode(s->session, o->ack_from[i])) fail("NormAddAckingNode %u", o->ack_from[i]);
    if (!NormStartSender(s->session, (NormSessionId)o->instance_id, BUFFER_SPACE, (UINT16)o->segment_size,
                         (UINT16)o->block_size, (UINT16)o->parity, (UINT8)o->fec_id))
        fail("NormStartSender");
    NormSetTxSocketBuffer(s->session, SOCKET_BUFFER);
    NormSetAutoParity(s->session, (unsigned char)o->auto_parity);
}

static bool send_all(NormInstanceHandle instance, const struct options *o) {
    struct sender s = {.o = o, .instance = instance, .deadline = now() + o->timeout, .last = NORM_OBJECT_INVALID};
    double begin = now() + o->start_delay;
    while (!interrupted && now() < begin) wait_for_event(instance, begin);
    s.session = open_session(instance, o);
    start_sender(&s);
    printf("{\"role\":\"send\",\"ready\":true,\"instance_id\":%u,\"tx_port\":%u}\n", o->instance_id,
           (unsigned)NormGetTxPort(s.session));
    if (o->content == STREAM) {
        s.contents = load(o->paths[0], &s.size);
        s.last = NormStreamOpen(s.session, o->stream_buffer, NULL, 0);
        if (s.last == NORM_OBJECT_INVALID) fail("NormStreamOpen");
    }
    give(&s);
    double start = now();
    while (!interrupted && now() < s.deadline && !(s.marked ? s.watermark_done : s.flushed)) {
        NormEvent event;
        wait_for_event(instance, s.deadline);
        while (NormGetNextEvent(instance, &event, false)) sender_event(&s, &event);
    }
    bool ok = s.marked ? s.watermark_done : s.flushed;
    printf("{\"role\":\"send\",\"ok\":");
    char nodes[MAX_NODES * 40] = "";
    size_t used = 0;
    for (int i = 0; i < o->ack_count; i++) {
        bool acked = s.watermark_done && NormGetAckingStatus(s.session, o->ack_from[i]) == NORM_ACK_SUCCESS;
        ok = ok && acked;
        used += (size_t)snprintf(nodes + used, sizeof nodes - used, "%s\"%u\":%s", i > 0 ? "," : "", o->ack_from[i],
                                 acked ? "true" : "false");
    }
    printf("%s,\"%s\":%d,\"bytes\":%llu,\"acked\":{%s},\"grtt\":%.6f,\"rate\":%.0f,\"seconds\":%.3f}\n",
           ok ? "true" : "false", o->content == STREAM ? "messages" : "objects", s.given, s.bytes, nodes,
           NormGetGrttEstimate(s.session), NormGetTxRate(s.session), now() - start);
    NormStopSender(s.session);
    NormDestroySession(s.session);
    free(s.contents);
    return ok;
}

/* Receiving. */

/* What the program keeps about a stream (it is the user data of the stream's object). */
struct stream {
    FILE *file;
    bool aligned; /* reading has found the start of a message */
};

struct receiver {
    const struct options *o;
    NormSessionHandle session;
    char partial[PATH_SIZE]; /* where libnorm puts files that are still arriving */
    unsigned objects, streams, aborted, breaks, senders, resets;
    unsigned long long bytes, messages;
    bool ok; /* nothing went wrong on this machine, such as a full disk */
};

static FILE *create(struct receiver *r, const char *name) {
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", r->o->out, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL) fail("%s: %s", path, strerror(errno));
    return file;
}

static void drain(struct receiver *r, NormObjectHandle object) {
    struct stream *stream = (struct stream *)NormObjectGetUserData(object);
    if (stream == NULL) {
        char name[64];
        stream = calloc(1, sizeof *stream);
        if (stream == NULL) fail("out of memory");
        snprintf(name, sizeof name, "stream-%u", r->streams++);
        stream->file = create(r, name);
        NormObjectSetUserData(object, stream);
    }
    for (;;) {
        char buffer[65536];
        unsigned length = sizeof buffer;
        if (!stream->aligned && !(stream->aligned = NormStreamSeekMsgStart(object))) return;
        if (!NormStreamRead(object, buffer, &length)) {
            stream->aligned = false;
            r->breaks++;
            continue;
        }
        if (length == 0) return;
        if (fwrite(buffer, 1, length, stream->file) != length) r->ok = false;
        r->bytes += length;
        for (unsigned i = 0; i < length; i++) r->messages += buffer[i] == '\n';
    }
}

/* The name a file goes by: its NORM_INFO, of which a path is not believed, or else its number. */
static void file_name(struct receiver *r, NormObjectHandle object, char *name, size_t size) {
    char info[INFO_SIZE] = "";
    if (NormObjectHasInfo(object)) info[NormObjectGetInfo(object, info, sizeof info - 1)] = '\0';
    const char *base = base_name(info);
    if (base[0] == '\0' || base[0] == '.') snprintf(name, size, "%u", r->objects);
    else snprintf(name, size, "%s", base);
}

static void completed(struct receiver *r, NormObjectHandle object) {
    char name[INFO_SIZE], path[PATH_SIZE + INFO_SIZE];
    size_t size = (size_t)NormObjectGetSize(object);
    switch (NormObjectGetType(object)) {
    case NORM_OBJECT_DATA:
        /* The API does not tell a received object's transport id. */
        snprintf(name, sizeof name, "%u", r->objects);
        FILE *file = create(r, name);
        if (size > 0 && fwrite(NormDataAccessData(object), 1, size, file) != size) r->ok = false;
        if (fclose(file) != 0) r->ok = false;
        r->bytes += size;
        break;
    case NORM_OBJECT_FILE:
        file_name(r, object, name, sizeof name);
        snprintf(path, sizeof path, "%s/%s", r->o->out, name);
        if (!NormFileRename(object, path)) r->ok = false;
        r->bytes += size;
        break;
    case NORM_OBJECT_STREAM:
        drain(r, object);
        struct stream *stream = (struct stream *)NormObjectGetUserData(object);
        if (stream != NULL && stream->file != NULL) {
            if (fclose(stream->file) != 0) r->ok = false;
            stream->file = NULL;
        }
        break;
    default:
        return;
    }
    r->objects++;
}

static void receiver_event(struct receiver *r, const NormEvent *event) {
    switch (event->type) {
    case NORM_REMOTE_SENDER_NEW:
        r->senders++;
        break;
    case NORM_REMOTE_SENDER_RESET:
        r->resets++;
        break;
    case NORM_RX_OBJECT_UPDATED:
        if (NormObjectGetType(event->object) == NORM_OBJECT_STREAM) drain(r, event->object);
        break;
    case NORM_RX_OBJECT_COMPLETED:
        completed(r, event->object);
        break;
    case NORM_RX_OBJECT_ABORTED:
        r->aborted++;
        break;
    default:
        break;
    }
}

static void remove_partial(const char *directory) {
    DIR *entries = opendir(directory);
    if (entries == NULL) return;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
    rmdir(directory);
}

static bool receive_all(NormInstanceHandle instance, const struct options *o) {
    struct receiver r = {.o = o, .ok = true};
    snprintf(r.partial, sizeof r.partial, "%s/.partial-%d/", o->out, (int)getpid());
    mkdir(o->out, 0777);
    if (mkdir(r.partial, 0777) != 0) fail("%s: %s", r.partial, strerror(errno));
    if (!NormSetCacheDirectory(instance, r.partial)) fail("NormSetCacheDirectory %s", r.partial);
    r.session = open_session(instance, o);
    NormSetDefaultUnicastNack(r.session, o->unicast_nack);
    NormSetDefaultSyncPolicy(r.session, o->sync);
    NormSetRxCacheLimit(r.session, 1024);
    if (!NormStartReceiver(r.session, BUFFER_SPACE)) fail("NormStartReceiver");
    NormSetRxSocketBuffer(r.session, SOCKET_BUFFER);
    printf("{\"role\":\"recv\",\"ready\":true}\n");
    double start = now(), deadline = start + o->timeout, end = deadline, done = 0;
    while (!interrupted && now() < end) {
        NormEvent event;
        wait_for_event(instance, end);
        while (NormGetNextEvent(instance, &event, false)) receiver_event(&r, &event);
        if (done == 0 && r.objects >= o->count) {
            done = now();
            end = done + LINGER; /* past the deadline, if need be: the work is done */
        }
    }
    bool ok = r.ok && r.objects >= o->count;
    printf("{\"role\":\"recv\",\"ok\":%s,\"objects\":%u,\"bytes\":%llu,\"messages\":%llu,\"aborted\":%u,"
           "\"stream_breaks\":%u,\"senders\":%u,\"sender_resets\":%u,\"seconds\":%.3f}\n",
           ok ? "true" : "false", r.objects, r.bytes, r.messages, r.aborted, r.breaks, r.senders, r.resets,
           (done > 0 ? done : now()) - start);
    NormStopReceiver(r.session);
    NormDestroySession(r.session);
    remove_partial(r.partial);
    return ok;
}

int main(int argc, char **argv) {
    struct options o = {
        .ttl = -1,
        .timeout = 60,
        .segment_size = 1400,
        .block_size = 64,
        .rate = 10e6,
        .robust = -1,
        .instance_id = 1,
        .stream_buffer = 1024 * 1024,
        .sync = NORM_SYNC_CURRENT,
        .count = 1,
    };
    struct timespec clock;
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(&o, argc, argv);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    /* Should libnorm not come back, the process ends all the same. */
    alarm((unsigned)(o.timeout + o.start_delay + LINGER) + 5);
    /* libnorm draws its backoffs from rand() and does not seed it: equal receivers would all answer at once. */
    clock_gettime(CLOCK_REALTIME, &clock);
    srand((unsigned)clock.tv_nsec ^ (unsigned)getpid() << 8 ^ o.node_id);
    NormInstanceHandle instance = NormCreateInstance(false);
    if (instance == NORM_INSTANCE_INVALID) fail("NormCreateInstance");
    bool ok = o.sender ? send_all(instance, &o) : receive_all(instance, &o);
    NormDestroyInstance(instance);
    return ok ? 0 : 1;
}
