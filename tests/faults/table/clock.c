/* SPDX-License-Identifier: Apache-2.0
 *
 * Library that every process of a service preloads. It shifts the wall clock, in Python as in C, by the seconds in a
 * file. The process maps the file, because a sandboxed process cannot open files. The monotonic clock is unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long none = 0;
static volatile long *offset_seconds = &none;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("UPDRAFT_TEST_CLOCK");
    int number = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (number < 0) return;
    void *mapped = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, number, 0);
    if (mapped != MAP_FAILED) offset_seconds = mapped;
    close(number);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*true_one)(clockid_t, struct timespec *);
    if (!true_one) true_one = dlsym(RTLD_NEXT, "clock_gettime");
    int result = true_one(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += *offset_seconds;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *written) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (written) *written = precise.tv_sec;
    return precise.tv_sec;
}

/* The caller computed `until` with the shifted clock, so shift it back for the true clock. */
int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static int (*true_one)(sem_t *, const struct timespec *);
    if (!true_one) true_one = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec shifted = {until->tv_sec - *offset_seconds, until->tv_nsec};
    return true_one(semaphore, &shifted);
}
