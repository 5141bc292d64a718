/* Preloaded into a server under test: sets its wall clock, and makes its disk full, read-only, broken or slow.
 *
 * `shim.rs` builds it and writes what it shall do into the file that TASHIKA_SHIM names, which is mapped here, so a change
 * holds from the next system call on. The monotonic clock is left alone: a machine's clock is set, its uptime is not.
 * Only regular files count as the disk; sockets, pipes and the log do not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* As in shim.rs. */
struct control {
    int64_t clock_offset_sec;
    int64_t write_errno;
    int64_t flush_errno;
    int64_t flush_delay_ms;
    int64_t used;
};

static volatile struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TASHIKA_SHIM");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        fprintf(stderr, "the shim has no control file\n");
        abort();
    }
    close(fd);
    control = map;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int on_disk(int fd) {
    struct stat found;
    return control && fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

/* The error to fail with, or 0. */
static int write_fault(int fd) {
    if (!on_disk(fd)) return 0;
    control->used = 1;
    return (int)control->write_errno;
}

static int flush_fault(int fd) {
    if (!on_disk(fd)) return 0;
    control->used = 1;
    int64_t wait = control->flush_delay_ms;
    if (wait > 0) {
        struct timespec span = {wait / 1000, wait % 1000 * 1000000};
        nanosleep(&span, NULL);
    }
    return (int)control->flush_errno;
}

#define FAIL_IF(fault) do { int found = (fault); if (found) { errno = found; return -1; } } while (0)

ssize_t write(int fd, const void *bytes, size_t length) {
    FAIL_IF(write_fault(fd));
    return REAL(write)(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    FAIL_IF(write_fault(fd));
    return REAL(pwrite)(fd, bytes, length, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    FAIL_IF(write_fault(fd));
    return REAL(pwrite64)(fd, bytes, length, at);
}

int fsync(int fd) {
    FAIL_IF(flush_fault(fd));
    return REAL(fsync)(fd);
}

int fdatasync(int fd) {
    FAIL_IF(flush_fault(fd));
    return REAL(fdatasync)(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (result == 0 && control && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec += control->clock_offset_sec;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    int result = REAL(gettimeofday)(now, zone);
    if (result == 0 && control && now) now->tv_sec += control->clock_offset_sec;
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
