/* Preloaded into the workers of a host: its clock is off by so much, and its disk takes so long, as a file of two numbers
 * says that is changed while they run. Nothing else of the machine is touched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int64_t clock_seconds; /* that the host's clock is ahead */
    volatile int64_t disk_micros;   /* that each fsync takes longer */
};

static const struct control *control(void) {
    static const struct control none, *found;
    if (!found) {
        const char *path = getenv("WEFT_FAULTS_CONTROL");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *found, PROT_READ, MAP_SHARED, file, 0);
        found = mapped == MAP_FAILED ? &none : mapped;
        if (file >= 0) close(file);
    }
    return found;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    if (!code && clock == CLOCK_REALTIME) now->tv_sec += control()->clock_seconds;
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    int code = clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec, now->tv_usec = found.tv_nsec / 1000;
    return code;
}

time_t time(time_t *out) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (out) *out = found.tv_sec;
    return found.tv_sec;
}

static void wait_for_disk(void) {
    int64_t micros = control()->disk_micros;
    struct timespec rest = {micros / 1000000, micros % 1000000 * 1000};
    if (micros > 0) nanosleep(&rest, NULL);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_for_disk();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_for_disk();
    return real(file);
}
