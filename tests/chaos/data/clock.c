/* Preloaded into a node: its wall clock is off by what a file says.
 *
 * CHAOS_CLOCK_FILE names a file of 8 bytes: milliseconds to add, little-endian, signed. The file is
 * mapped, so that a change counts at once. Other clocks are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead_ms;
static int (*true_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void prepare(void) {
    true_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CHAOS_CLOCK_FILE");
    if (!path)
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *map = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED)
        abort();
    ahead_ms = map;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!true_clock)
        prepare();
    int result = true_clock(clock, now);
    if (result == 0 && ahead_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ms = *ahead_ms;
        now->tv_sec += ms / 1000;
        now->tv_nsec += ms % 1000 * 1000000;
        if (now->tv_nsec < 0) {
            now->tv_sec -= 1;
            now->tv_nsec += 1000000000;
        } else if (now->tv_nsec >= 1000000000) {
            now->tv_sec += 1;
            now->tv_nsec -= 1000000000;
        }
    }
    return result;
}
