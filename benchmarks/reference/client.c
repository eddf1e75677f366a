/* The reference: how many messages a second a client without any overhead gets through the scripts beside this file.
 *
 *   client PORT MODE BATCH COUNT QUEUE SEND_SHA RECEIVE_SHA DELETE_SHA BODY
 *
 * MODE "send" sends COUNT messages, BATCH to a script call; "cycle" receives and deletes COUNT messages, BATCH to a
 * call, where the deletion of one batch travels with the receive of the next. One request is under way at a time.
 * Prints the number of messages and the seconds.
 *
 * Commands are packed by hand and replies are read in place: plain sockets, no library. It trusts the server and
 * checks only what would make the figure wrong.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_BATCH 1000
#define ID_LENGTH 32
#define ROOM (8 << 20) /* Bytes for one request or one reply: a batch of a thousand small messages. */

static int server;
static char request[ROOM], reply[ROOM];
static size_t written, end, at;

static void fail(const char *why) {
    fprintf(stderr, "client: %s\n", why);
    exit(1);
}

/* -- Requests ----------------------------------------------------------------------------------------------------- */

static void header(char kind, size_t n) {
    if (written + 32 > ROOM) fail("request too long");
    written += sprintf(request + written, "%c%zu\r\n", kind, n);
}

static void word(const char *text, size_t length) {
    header('$', length);
    if (written + length + 2 > ROOM) fail("request too long");
    memcpy(request + written, text, length);
    memcpy(request + written + length, "\r\n", 2);
    written += length + 2;
}

static void text(const char *string) { word(string, strlen(string)); }

static void number(int n) {
    char digits[16];
    word(digits, sprintf(digits, "%d", n));
}

static void script_call(const char *sha, const char *queue, int args) {
    char settings[256];
    snprintf(settings, sizeof settings, "%s:Q", queue);
    header('*', 5 + args);
    text("EVALSHA");
    text(sha);
    text("2");
    text(queue);
    text(settings);
}

static void submit(void) {
    for (size_t sent = 0; sent < written;) {
        ssize_t n = write(server, request + sent, written - sent);
        if (n <= 0) fail("the server closed the connection");
        sent += n;
    }
    written = 0;
}

/* -- Replies ------------------------------------------------------------------------------------------------------ */

static void read_more(void) {
    if (end == ROOM) fail("reply too long");
    ssize_t n = read(server, reply + end, ROOM - end);
    if (n <= 0) fail("the server closed the connection");
    end += n;
}

/* Returns the number of a line such as "*12" or "$32" or ":1". */
static long line(void) {
    char *stop;
    while (!(stop = memchr(reply + at, '\n', end - at))) read_more();
    if (reply[at] == '-') {
        fwrite(reply + at, 1, stop - (reply + at), stderr);
        fail("the server refused");
    }
    long n = atol(reply + at + 1);
    at = stop - reply + 1;
    return n;
}

/* Returns a text with its length; it stays valid until forget_replies(). */
static char *text_reply(long *length) {
    size_t start;
    *length = line();
    start = at;
    while (end < start + *length + 2) read_more();
    at = start + *length + 2;
    return reply + start;
}

static void forget_replies(void) { at = end = 0; }

/* -- What is measured --------------------------------------------------------------------------------------------- */

/* RSMQ's ids: ten base-36 digits of the microsecond, then 22 characters by chance. How good that chance is does not
 * change the figure. */
static void make_id(char *id) {
    static unsigned long long state = 88172645463325252ull;
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZxy";
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    unsigned long long us = t.tv_sec * 1000000ull + t.tv_nsec / 1000;
    for (int i = 9; i >= 0; i--, us /= 36) id[i] = digits[us % 36];
    for (int i = 10; i < ID_LENGTH; i++) {
        if (i % 10 == 0) state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        id[i] = digits[state >> (6 * (i % 10)) & 63];
    }
}

static void send_batch(const char *sha, const char *queue, int batch, const char *body) {
    char id[ID_LENGTH];
    script_call(sha, queue, 2 * batch);
    for (int i = 0; i < batch; i++) make_id(id), word(id, sizeof id), text(body);
    submit();
    if (line() != batch) fail("not every message was stored");
    forget_replies();
}

static char held[MAX_BATCH][ID_LENGTH];

/* Deletes what is held, receives up to `batch` more, and returns how many came. */
static int exchange(const char *receive, const char *delete, const char *queue, int batch, int holding) {
    long length, words = 0;
    if (holding) {
        script_call(delete, queue, holding);
        for (int i = 0; i < holding; i++) word(held[i], ID_LENGTH);
    }
    if (batch) script_call(receive, queue, 2), number(batch), text("30000");
    submit();
    if (holding && line() != holding) fail("not every message was deleted");
    if (batch) words = line();
    for (int i = 0; i < words; i++) {
        char *found = text_reply(&length);
        if (i % 4 == 0 && length != ID_LENGTH) fail("not an id of this program");
        if (i % 4 == 0) memcpy(held[i / 4], found, ID_LENGTH);
    }
    forget_replies();
    return words / 4;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void connect_to(int port) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(server, (struct sockaddr *)&where, sizeof where)) fail("cannot connect");
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int main(int argc, char **argv) {
    if (argc != 10) fail("see the head of client.c for its arguments");
    int batch = atoi(argv[3]), count = atoi(argv[4]), done = 0, holding = 0;
    char *queue = argv[5], *send = argv[6], *receive = argv[7], *delete = argv[8], *body = argv[9];
    if (batch < 1 || batch > MAX_BATCH || count % batch) fail("COUNT must be a multiple of BATCH, at most 1000");
    connect_to(atoi(argv[1]));
    double began = now_s();
    if (!strcmp(argv[2], "send")) {
        for (; done < count; done += batch) send_batch(send, queue, batch, body);
    } else {
        while (done < count) {
            holding = exchange(receive, delete, queue, batch, holding);
            if (!holding) fail("the queue is empty too early");
            done += holding;
        }
        exchange(receive, delete, queue, 0, holding);
    }
    printf("%d %.6f\n", done, now_s() - began);
    return 0;
}
