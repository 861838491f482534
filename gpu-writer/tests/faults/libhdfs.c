/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of libhdfs that pyarrow needs, over a directory of this machine (LIBHDFS_ROOT): a name node without Hadoop.
 *
 * It renames to no name that is taken, as HDFS does. What fails is not decided here: it makes ordinary system calls and
 * hands on their errno, so that failing_calls.c decides it, with errno 255 where Hadoop threw an exception that libhdfs
 * has no errno for. A lookup opens the file. The names and the layout of hdfsFileInfo are those of Hadoop's hdfs.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    int kind;
    char *name;
    time_t modified;
    int64_t size;
    short replication;
    int64_t block_size;
    char *owner;
    char *group;
    short permissions;
    time_t accessed;
} hdfsFileInfo;

typedef struct {
    int descriptor;
    int64_t offset;
} File;

static int connection;

static const char *local(const char *path, char *place) {
    const char *root = getenv("LIBHDFS_ROOT");
    int length = snprintf(place, PATH_MAX, "%s%s", root == NULL ? "/nonexistent" : root, path);
    if (length < 0 || length >= PATH_MAX) abort();
    return place;
}

void *hdfsNewBuilder(void) { return &connection; }
void hdfsBuilderSetNameNode(void *builder, const char *host) { (void)builder, (void)host; }
void hdfsBuilderSetNameNodePort(void *builder, uint16_t port) { (void)builder, (void)port; }
void hdfsBuilderSetUserName(void *builder, const char *name) { (void)builder, (void)name; }
void hdfsBuilderSetKerbTicketCachePath(void *builder, const char *path) { (void)builder, (void)path; }
void hdfsBuilderSetForceNewInstance(void *builder) { (void)builder; }
int hdfsBuilderConfSetStr(void *builder, const char *key, const char *value) {
    return (void)builder, (void)key, (void)value, 0;
}
void *hdfsBuilderConnect(void *builder) { return builder; }
int hdfsDisconnect(void *fs) { return (void)fs, 0; }
int64_t hdfsGetCapacity(void *fs) { return (void)fs, 0; }
int64_t hdfsGetUsed(void *fs) { return (void)fs, 0; }
int hdfsChown(void *fs, const char *path, const char *owner, const char *group) {
    return (void)fs, (void)path, (void)owner, (void)group, 0;
}
int hdfsChmod(void *fs, const char *path, short mode) { return (void)fs, (void)path, (void)mode, 0; }

hdfsFileInfo *hdfsGetPathInfo(void *fs, const char *path) {
    (void)fs;
    char place[PATH_MAX];
    struct stat status;
    int descriptor = open(local(path, place), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return NULL;
    int known = fstat(descriptor, &status);
    close(descriptor);
    hdfsFileInfo *info = known < 0 ? NULL : calloc(1, sizeof *info);
    if (info == NULL) return NULL;
    info->kind = S_ISDIR(status.st_mode) ? 'D' : 'F';
    info->name = strdup(path);
    info->owner = strdup("");
    info->group = strdup("");
    info->modified = status.st_mtime;
    info->size = status.st_size;
    return info;
}

void hdfsFreeFileInfo(hdfsFileInfo *infos, int count) {
    for (int index = 0; index < count; index++) free(infos[index].name), free(infos[index].owner), free(infos[index].group);
    free(infos);
}

hdfsFileInfo *hdfsListDirectory(void *fs, const char *path, int *count) {
    (void)fs, (void)path;
    *count = 0;
    errno = ENOTSUP;
    return NULL;
}

int hdfsExists(void *fs, const char *path) {
    hdfsFileInfo *info = hdfsGetPathInfo(fs, path);
    if (info == NULL) return -1;
    hdfsFreeFileInfo(info, 1);
    return 0;
}

int hdfsCreateDirectory(void *fs, const char *path) {
    (void)fs;
    char place[PATH_MAX];
    local(path, place);
    for (char *end = strchr(place + 1, '/'); end != NULL; end = strchr(end + 1, '/')) {
        *end = '\0';
        if (mkdir(place, 0777) < 0 && errno != EEXIST) return -1;
        *end = '/';
    }
    return mkdir(place, 0777) < 0 && errno != EEXIST ? -1 : 0;
}

int hdfsDelete(void *fs, const char *path, int recursive) {
    (void)fs, (void)recursive;
    char place[PATH_MAX];
    return unlink(local(path, place));
}

int hdfsRename(void *fs, const char *from, const char *to) {
    char source[PATH_MAX], target[PATH_MAX];
    if (hdfsExists(fs, to) == 0) {
        errno = EIO;
        return -1;
    }
    return rename(local(from, source), local(to, target));
}

void *hdfsOpenFile(void *fs, const char *path, int flags, int buffer, short replication, int32_t block) {
    (void)fs, (void)buffer, (void)replication, (void)block;
    char place[PATH_MAX];
    int how = (flags & O_ACCMODE) == O_WRONLY ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
    int descriptor = open(local(path, place), how | O_CLOEXEC, 0666);
    File *file = descriptor < 0 ? NULL : calloc(1, sizeof *file);
    if (file != NULL) file->descriptor = descriptor;
    return file;
}

int hdfsCloseFile(void *fs, void *file) {
    (void)fs;
    int result = close(((File *)file)->descriptor);
    free(file);
    return result;
}

int32_t hdfsWrite(void *fs, void *file, const void *data, int32_t size) {
    (void)fs;
    ssize_t written = write(((File *)file)->descriptor, data, (size_t)size);
    if (written > 0) ((File *)file)->offset += written;
    return (int32_t)written;
}

int64_t hdfsTell(void *fs, void *file) { return (void)fs, ((File *)file)->offset; }
int hdfsFlush(void *fs, void *file) { return (void)fs, (void)file, 0; }
int hdfsSeek(void *fs, void *file, int64_t offset) { return (void)fs, (void)file, (void)offset, -1; }
int32_t hdfsRead(void *fs, void *file, void *data, int32_t size) {
    return (void)fs, (void)file, (void)data, (void)size, -1;
}
