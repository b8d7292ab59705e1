/* What peers in C share: messages as workload.py makes and checks them, clocks and arguments. SYSTEM is the peer's name. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PATTERNS = 5, END_BYTES = 16 };
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

static double number(const char *option, const char *text) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(value >= 0) || value > 1e15) {
        fprintf(stderr, "Error: %s: not a number: %s\n", option, text);
        _exit(2);
    }
    return value;
}

/* Messages: the same as workload.py makes and checks. */

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
