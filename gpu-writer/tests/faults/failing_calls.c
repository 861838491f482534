/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes system calls on chosen files fail, for a process that has this library preloaded (LD_PRELOAD).
 *
 * FAILING_CALLS names a file, which a test may replace at any time: a number that is another for each file, then rules,
 * one a line:
 *
 *     CALL ERRNO EFFECT SKIP TIMES NEEDLE
 *
 * CALL is open, write, fsync, close or rename. The call fails with ERRNO when NEEDLE is in its path (of a rename: in
 * its new path); with a $ behind it the path has to end so. EFFECT is "done" when the call is carried out before it
 * fails, else "undone". After SKIP calls TIMES calls fail; 0: all.
 * Each call on a path below FAILING_CALLS_ROOT is appended to FAILING_CALLS_LOG as "CALL PATH".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_RULES = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* How many calls each rule was meant for since its file was replaced. */
static int seen[MOST_RULES];
static long rules_number;

typedef struct {
    int error; /* 0: the call is carried out as usual */
    int done;
} Fault;

static void record(const char *call, const char *path) {
    const char *log = getenv("FAILING_CALLS_LOG");
    char line[PATH_MAX + 32];
    int length = snprintf(line, sizeof line, "%s %s\n", call, path);
    if (log == NULL || length < 0 || length >= (int)sizeof line) return;
    int file = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return;
    if (syscall(SYS_write, file, line, (size_t)length) != length) abort();
    syscall(SYS_close, file);
}

/* The rules' text; calls that this library replaces are made directly. */
static void read_rules(char *text, size_t size) {
    text[0] = '\0';
    const char *path = getenv("FAILING_CALLS");
    int file = path == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return;
    long length = syscall(SYS_read, file, text, size - 1);
    text[length < 0 ? 0 : length] = '\0';
    syscall(SYS_close, file);
    long number = strtol(text, NULL, 10);
    if (number != rules_number) memset(seen, 0, sizeof seen);
    rules_number = number;
}

static int matches(const char *path, const char *needle) {
    size_t length = strlen(needle), whole = strlen(path);
    if (length == 0 || needle[length - 1] != '$') return strstr(path, needle) != NULL;
    return whole >= length - 1 && strncmp(path + whole - (length - 1), needle, length - 1) == 0;
}

static Fault fault_of(const char *call, const char *path) {
    Fault found = {0, 0};
    const char *root = getenv("FAILING_CALLS_ROOT");
    if (root == NULL || strncmp(path, root, strlen(root)) != 0) return found;
    int before = errno;
    char text[4096], *rest = text, *line;
    pthread_mutex_lock(&lock);
    record(call, path);
    read_rules(text, sizeof text);
    strsep(&rest, "\n");
    for (int index = 0; index < MOST_RULES && (line = strsep(&rest, "\n")) != NULL; index++) {
        char name[16], effect[16], needle[256];
        int error, skip, times;
        if (sscanf(line, "%15s %d %15s %d %d %255s", name, &error, effect, &skip, &times, needle) != 6) continue;
        if (strcmp(name, call) != 0 || !matches(path, needle)) continue;
        int number = seen[index]++;
        if (number < skip || (times && number >= skip + times)) continue;
        found.error = error;
        found.done = strcmp(effect, "done") == 0;
        break;
    }
    pthread_mutex_unlock(&lock);
    errno = before;
    return found;
}

static Fault fault_of_descriptor(const char *call, int descriptor) {
    char link[64], path[PATH_MAX];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0) return (Fault){0, 0};
    path[length] = '\0';
    return fault_of(call, path);
}

static int failed(Fault fault) {
    errno = fault.error;
    return -1;
}

/* The path of a name in a directory that is open. */
static const char *path_in(int directory, const char *name, char *path) {
    char link[64];
    if (directory == AT_FDCWD || name[0] == '/') return name;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    errno = before;
    if (length < 0) return name;
    int written = snprintf(path + length, (size_t)(PATH_MAX - length), "/%s", name);
    return written < PATH_MAX - length ? path : name;
}

static int open_as(int directory, const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    Fault fault = fault_of("open", path_in(directory, path, whole));
    if (fault.error) return failed(fault);
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(NAME)                                     \
    int NAME(const char *path, int flags, ...) {       \
        va_list arguments;                             \
        va_start(arguments, flags);                    \
        mode_t mode = mode_of(flags, arguments);       \
        va_end(arguments);                             \
        return open_as(AT_FDCWD, path, flags, mode);   \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(NAME)                                          \
    int NAME(int directory, const char *path, int flags, ...) { \
        va_list arguments;                                    \
        va_start(arguments, flags);                           \
        mode_t mode = mode_of(flags, arguments);              \
        va_end(arguments);                                    \
        return open_as(directory, path, flags, mode);         \
    }
OPENAT(openat)
OPENAT(openat64)

static ssize_t write_at(int descriptor, const void *data, size_t size, off_t offset, int at) {
    Fault fault = fault_of_descriptor("write", descriptor);
    ssize_t written = 0;
    if (!fault.error || fault.done)
        written = at ? syscall(SYS_pwrite64, descriptor, data, size, offset) : syscall(SYS_write, descriptor, data, size);
    return fault.error ? failed(fault) : written;
}

ssize_t write(int descriptor, const void *data, size_t size) { return write_at(descriptor, data, size, 0, 0); }
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    return write_at(descriptor, data, size, offset, 1);
}
ssize_t pwrite64(int descriptor, const void *data, size_t size, off_t offset) {
    return write_at(descriptor, data, size, offset, 1);
}

static int sync_by(long number, int descriptor) {
    Fault fault = fault_of_descriptor("fsync", descriptor);
    int result = fault.error && !fault.done ? 0 : (int)syscall(number, descriptor);
    return fault.error ? failed(fault) : result;
}

int fsync(int descriptor) { return sync_by(SYS_fsync, descriptor); }
int fdatasync(int descriptor) { return sync_by(SYS_fdatasync, descriptor); }

int close(int descriptor) {
    Fault fault = fault_of_descriptor("close", descriptor);
    /* Linux closes a descriptor also when close fails. */
    int result = (int)syscall(SYS_close, descriptor);
    return fault.error ? failed(fault) : result;
}

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    char whole[PATH_MAX];
    Fault fault = fault_of("rename", path_in(to_directory, to, whole));
    int result = fault.error && !fault.done ? 0 : (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 0);
    return fault.error ? failed(fault) : result;
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
