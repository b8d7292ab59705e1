/* Code that the peers in C share: messages as bench/workload/ makes and checks them, clocks, arguments, and the lines
 * of JSON that all peers print. SYSTEM is the peer's name. Exit status: 0 success, 1 failure, 2 wrong arguments. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PATTERNS = 5, END_BYTES = 16, MAX_NODES = 256 };
static const uint64_t STEP = 0x9E3779B97F4A7C15u, END_NUMBER = ((uint64_t)1 << 40) - 1;

static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
    (void)number;
    interrupted = 1;
}

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("Error: " SYSTEM ": ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Arguments. */

enum role { PUB, SUB, PING, ECHO };

struct options {
    enum role role;
    const char *publisher, *group, *interface, *object;
    unsigned port, size, receivers, warm_up, batch, segment_size;
    uint64_t count;
    double seconds, rate, timeout;
    bool verify;
};

static const struct {
    const char *name;
    size_t place;
    enum { TEXT, WHOLE, COUNT, REAL } kind;
    double least, most;
} OPTIONS[] = {
    {"--publisher", offsetof(struct options, publisher), TEXT, 0, 0},
    {"--group", offsetof(struct options, group), TEXT, 0, 0},
    {"--interface", offsetof(struct options, interface), TEXT, 0, 0},
    {"--object", offsetof(struct options, object), TEXT, 0, 0},
    {"--port", offsetof(struct options, port), WHOLE, 1, 65534},
    {"--size", offsetof(struct options, size), WHOLE, 8, 1 << 28},
    {"--receivers", offsetof(struct options, receivers), WHOLE, 0, MAX_NODES},
    {"--warm-up", offsetof(struct options, warm_up), WHOLE, 0, 1e9},
    {"--batch", offsetof(struct options, batch), WHOLE, 1, 1e9},
    {"--segment-size", offsetof(struct options, segment_size), WHOLE, 64, 65000},
    {"--count", offsetof(struct options, count), COUNT, 0, 1e15},
    {"--seconds", offsetof(struct options, seconds), REAL, 0, 1e6},
    {"--rate", offsetof(struct options, rate), REAL, 0, 1e15},
    {"--timeout", offsetof(struct options, timeout), REAL, 0, 1e6},
};

static void mistaken(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void mistaken(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("Error: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(2);
}

static void set_option(struct options *o, const char *name, const char *text) {
    size_t at = 0;
    while (at < sizeof OPTIONS / sizeof *OPTIONS && strcmp(name, OPTIONS[at].name) != 0) at++;
    if (at == sizeof OPTIONS / sizeof *OPTIONS) mistaken("unknown option %s", name);
    void *place = (char *)o + OPTIONS[at].place;
    if (OPTIONS[at].kind == TEXT) {
        *(const char **)place = text;
        return;
    }
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(value >= OPTIONS[at].least && value <= OPTIONS[at].most))
        mistaken("%s: %s: expected %g to %g", name, text, OPTIONS[at].least, OPTIONS[at].most);
    if (OPTIONS[at].kind == WHOLE) *(unsigned *)place = (unsigned)value;
    if (OPTIONS[at].kind == COUNT) *(uint64_t *)place = (uint64_t)value;
    if (OPTIONS[at].kind == REAL) *(double *)place = value;
}

/* Returns the options of this process. From now on, signals to end are noted in `interrupted`. */
static struct options begin(int argc, char **argv) {
    static const char *const roles[] = {"pub", "sub", "ping", "echo"};
    struct options o = {
        .publisher = "127.0.0.1",
        .group = "239.192.57.40",
        .interface = "lo",
        .object = "stream",
        .port = 5740,
        .size = 1024,
        .receivers = 1,
        .warm_up = 500,
        .batch = 1,
        .segment_size = 8000,
        .rate = 40e9,
        .timeout = 60,
        .verify = true,
    };
    while (o.role <= ECHO && (argc < 2 || strcmp(argv[1], roles[o.role]) != 0)) o.role++;
    if (o.role > ECHO) mistaken("expected pub, sub, ping or echo, and options");
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--no-verify") == 0) {
            o.verify = false;
            continue;
        }
        if (i + 1 == argc) mistaken("%s: expected a value", argv[i]);
        set_option(&o, argv[i], argv[i + 1]);
        i++;
    }
    if (o.count == 0 && o.seconds == 0) o.count = 5000;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART, so that no call outlasts a signal */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    return o;
}

/* Messages: the same as bench/workload/ makes and checks. */

struct workload {
    size_t size, rest;
    unsigned char *patterns; /* PATTERNS times `rest` bytes */
};

static uint64_t word_of(uint64_t n) {
    return n << 24 | (n * STEP) >> 40;
}

static void put_word(unsigned char *at, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(at, &value, 8);
}

static uint64_t get_word(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}

static void *allocate(size_t size) {
    void *bytes = calloc(1, size);
    if (bytes == NULL) fail("out of memory");
    return bytes;
}

static void make_patterns(struct workload *w, size_t size) {
    size_t words = (size - 8 + 7) / 8;
    w->size = size;
    w->rest = size - 8;
    w->patterns = allocate(PATTERNS * w->rest + 8);
    for (uint64_t p = 0; p < PATTERNS; p++)
        for (size_t i = 0; i < words; i++) {
            uint64_t mixed = ((p << 32) + i + 1) * STEP;
            mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
            mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
            mixed ^= mixed >> 31;
            size_t left = w->rest - i * 8;
            memcpy(w->patterns + p * w->rest + i * 8, &mixed, left < 8 ? left : 8); /* little-endian machines only */
        }
}

static void make_message(const struct workload *w, uint64_t n, unsigned char *at) {
    put_word(at, word_of(n));
    memcpy(at + 8, w->patterns + n % PATTERNS * w->rest, w->rest);
}

struct tally {
    uint64_t messages, duplicated, out_of_order, corrupt, next, missing_count;
    unsigned char *missing; /* a bit for each number that has been passed over */
    uint64_t missing_bits;
    bool begun;
};

static void set_missing(struct tally *t, uint64_t from, uint64_t to) {
    if (to > t->missing_bits) {
        uint64_t bits = (to * 2 + 7) / 8 * 8;
        t->missing = realloc(t->missing, bits / 8);
        if (t->missing == NULL) fail("out of memory");
        memset(t->missing + t->missing_bits / 8, 0, (bits - t->missing_bits) / 8);
        t->missing_bits = bits;
    }
    for (; from < to; from++) {
        t->missing[from / 8] |= (unsigned char)(1 << from % 8);
        t->missing_count++;
    }
}

static void check_message(const struct workload *w, struct tally *t, const unsigned char *at) {
    uint64_t value = get_word(at), n = value >> 24;
    bool good = word_of(n) == value && memcmp(at + 8, w->patterns + n % PATTERNS * w->rest, w->rest) == 0;
    if (!good || n > (uint64_t)1 << 36) {
        t->corrupt++;
        return;
    }
    if (n == t->next) {
        t->messages++;
        t->next++;
    } else if (n > t->next) {
        set_missing(t, t->next, n);
        t->messages++;
        t->next = n + 1;
    } else if (n < t->missing_bits && (t->missing[n / 8] >> n % 8 & 1) != 0) {
        t->missing[n / 8] &= (unsigned char)~(1 << n % 8);
        t->missing_count--;
        t->messages++;
        t->out_of_order++;
    } else {
        t->duplicated++;
    }
}

/* Round trips. */

static int compare_times(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static double at_part(const double *times, size_t count, double part) {
    size_t index = (size_t)((double)count * part);
    return times[index < count ? index : count - 1] * 1e6;
}

/* The lines of JSON. */

static void print_ready(void) {
    printf("{\"ready\": true}\n");
}

static void print_pub(const struct options *o, const char *object, const char *not_acked, uint64_t messages,
                      double seconds, double cpu_s, const char *waits) {
    double rate = (double)messages / seconds;
    printf("{\"system\": \"" SYSTEM "\", \"object\": \"%s\", \"size\": %u, \"batch\": %u, \"receivers\": %u, "
           "\"not_acked\": [%s], \"messages\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"msgs_per_s\": %.1f, "
           "\"gbit_per_s\": %.6f, \"cpu_s\": %.3f, \"nacks\": null, \"repairs\": null, \"window_waits\": %s}\n",
           object, o->size, o->batch, o->receivers, not_acked, (unsigned long long)messages,
           (unsigned long long)(messages * o->size), seconds, rate, rate * o->size * 8e-9, cpu_s, waits);
}

/* Messages that a subscriber has received: their counts and times. */
struct reception {
    struct tally tally;
    uint64_t unchecked; /* messages that were not checked */
    uint64_t total;     /* number of messages sent, once the end is known */
    uint64_t first_messages;
    bool started, ended;
    double first_at, last_at, first_cpu, last_cpu;
};

static uint64_t messages_of(const struct options *o, const struct reception *r) {
    return o->verify ? r->tally.messages : r->unchecked;
}

/* Notes the time of a piece. The first piece starts the clock, and does not count. Callers set `last_cpu`. */
static void note_time(const struct options *o, struct reception *r) {
    r->last_at = now();
    if (r->started) return;
    r->started = true;
    r->first_at = r->last_at;
    r->first_cpu = cpu();
    r->first_messages = messages_of(o, r);
}

static void print_sub(const struct options *o, const struct reception *r) {
    const struct tally *t = &r->tally;
    uint64_t messages = messages_of(o, r), next = o->verify ? t->next : messages;
    uint64_t lost = t->missing_count + (r->ended && r->total > next ? r->total - next : 0);
    double seconds = r->last_at - r->first_at;
    double rate = seconds > 0 ? (double)(messages - r->first_messages) / seconds : 0;
    printf("{\"system\": \"" SYSTEM "\", \"size\": %u, \"ended\": %s, \"verified\": %s, \"messages\": %llu, "
           "\"bytes\": %llu, \"seconds\": %.6f, \"msgs_per_s\": %.1f, \"gbit_per_s\": %.6f, \"lost\": %llu, "
           "\"duplicated\": %llu, \"out_of_order\": %llu, \"corrupt\": %llu, \"cpu_s\": %.3f}\n",
           o->size, r->ended ? "true" : "false", o->verify ? "true" : "false", (unsigned long long)messages,
           (unsigned long long)(messages * o->size), seconds, rate, rate * o->size * 8e-9, (unsigned long long)lost,
           (unsigned long long)t->duplicated, (unsigned long long)t->out_of_order, (unsigned long long)t->corrupt,
           r->last_cpu - r->first_cpu);
}

static void print_ping(const struct options *o, double *times, size_t count) {
    qsort(times, count, sizeof *times, compare_times);
    printf("{\"system\": \"" SYSTEM "\", \"size\": %u, \"count\": %zu, \"p50_us\": %.3f, \"p99_us\": %.3f, "
           "\"p999_us\": %.3f, \"max_us\": %.3f}\n",
           o->size, count, at_part(times, count, 0.5), at_part(times, count, 0.99), at_part(times, count, 0.999),
           at_part(times, count, 1.0));
}

static void print_echo(uint64_t messages) {
    printf("{\"system\": \"" SYSTEM "\", \"messages\": %llu}\n", (unsigned long long)messages);
}
