/* Preloaded into one server: adds the milliseconds in the file $RSMQ_FAULTS_CLOCK to its wall clock.
 *
 * The monotonic clock stays as it is, as on a machine whose wall clock is set. The file is read at each call, by system
 * calls only, because the allocator of the server asks for the time before it is ready. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long offset_ms(void) {
    const char *path = getenv("RSMQ_FAULTS_CLOCK");
    long file = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDONLY) : -1;
    if (file < 0) return 0;
    char text[32];
    long length = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    long long value = 0;
    int sign = 1;
    for (long at = 0; at < length; at++) {
        if (text[at] == '-') sign = -1;
        else if (text[at] >= '0' && text[at] <= '9') value = value * 10 + (text[at] - '0');
    }
    return sign * value;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int status = (int)syscall(SYS_clock_gettime, clock, time);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long now_ns = time->tv_sec * 1000000000LL + time->tv_nsec + offset_ms() * 1000000LL;
        time->tv_sec = now_ns / 1000000000LL;
        time->tv_nsec = now_ns % 1000000000LL;
    }
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec time;
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return status;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
