/* A disk that fails when it is told to, for the process that has this loaded (LD_PRELOAD).

   - Only what is below one directory counts, and fails; `disk_watch` names it. Everything else,
     such as modules that Python loads, passes.
   - `disk_fail` says which kinds of calls fail, which of them is the first, counted from 0, and
     whether all after it fail, too. `disk_calls` and `disk_failures` count since then; between
     `disk_pause(1)` and `disk_pause(0)` nothing fails or counts.
   - A large write to a full disk is torn: half of it is written, and the next write fails.
   - Nothing is really synced: no power is cut here. What a power cut would take is noted instead:
     `disk_is_unsynced` says of a file whether it was written to since it was synced, and of a
     directory whether it got names since.
   - System calls are made directly, so that nothing has to be looked up. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* In the order of `KINDS` in faulty_disk.py. */
enum { WRITE, SYNC, RENAME, OPEN, CREATE, READ, TRUNCATE, UNLINK, KINDS };

#define TORN_BYTES_MIN 512
#define FILES_MAX 4096

static char root[PATH_MAX];
static size_t root_size;
static unsigned faulty;
static long first, passed, failed, counts[KINDS];
static int error, is_lasting, is_torn, is_paused;

/* The files and directories that were seen, and whether a power cut would take some of them. */
static struct { ino_t number; int is_unsynced; } files[FILES_MAX];
static pthread_mutex_t files_turn = PTHREAD_MUTEX_INITIALIZER;

void disk_watch(const char *directory) {
    snprintf(root, sizeof root, "%s/", directory);
    root_size = strlen(root);
    memset(files, 0, sizeof files);
}

void disk_fail(unsigned kinds, long index, int with, int lasting) {
    faulty = kinds, first = index, error = with, is_lasting = lasting;
    passed = failed = is_torn = 0;
    memset(counts, 0, sizeof counts);
}

void disk_pause(int paused) { is_paused = paused; }
long disk_calls(int kind) { return counts[kind]; }
long disk_failures(void) { return failed; }

static void note(ino_t number, int is_unsynced) {
    pthread_mutex_lock(&files_turn);
    size_t at = number % FILES_MAX;
    while (files[at].number && files[at].number != number) at = (at + 1) % FILES_MAX;
    files[at].number = number, files[at].is_unsynced = is_unsynced;
    pthread_mutex_unlock(&files_turn);
}

static void note_file(int file, int is_unsynced) {
    struct stat found;
    if (!fstat(file, &found)) note(found.st_ino, is_unsynced);
}

static void note_name(int directory, const char *path) {
    char above[PATH_MAX];
    struct stat found;
    snprintf(above, sizeof above, "%s", path);
    char *slash = strrchr(above, '/');
    strcpy(slash ? slash : above, slash ? "" : ".");
    if (!fstatat(directory, above, &found, 0)) note(found.st_ino, 1);
}

int disk_is_unsynced(const char *path) {
    struct stat found;
    if (stat(path, &found)) return 0;
    size_t at = found.st_ino % FILES_MAX;
    while (files[at].number && files[at].number != found.st_ino) at = (at + 1) % FILES_MAX;
    return files[at].number && files[at].is_unsynced;
}

/* ── what is watched, and what fails ───────────────────────────────────────────────── */

static int is_ours(int file) {
    char link[32], path[PATH_MAX];
    if (!root_size || file < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 2);
    if (size < 0) return 0;
    strcpy(path + size, "/");
    return !strncmp(path, root, root_size);
}

static int is_ours_at(int directory, const char *path) {
    if (*path == '/') return root_size && !strncmp(path, root, root_size);
    return is_ours(directory);
}

static int is_failing(int kind) {
    if (is_paused) return 0;
    __atomic_fetch_add(&counts[kind], 1, __ATOMIC_SEQ_CST);
    if (!(faulty >> kind & 1)) return 0;
    long number = __atomic_fetch_add(&passed, 1, __ATOMIC_SEQ_CST);
    int is_due = number == first || (is_lasting && number > first) || (kind == WRITE && is_torn);
    if (is_due) failed++, errno = error;
    return is_due;
}

/* How much of a write reaches the disk; -1 if it fails. */
static ssize_t room_for(int file, size_t size) {
    int before = errno;
    if (!is_ours(file) || !is_failing(WRITE)) return errno = before, (ssize_t)size;
    is_torn = error == ENOSPC && size >= TORN_BYTES_MIN && !is_torn;
    return is_torn ? (ssize_t)(size / 2) : -1;
}

static ssize_t written(int file, ssize_t size) {
    if (size > 0 && is_ours(file)) note_file(file, 1);
    return size;
}

/* ── writing ───────────────────────────────────────────────────────────────────────── */

ssize_t write(int file, const void *bytes, size_t size) {
    ssize_t room = room_for(file, size);
    return room < 0 ? -1 : written(file, syscall(SYS_write, file, bytes, room));
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at) {
    ssize_t room = room_for(file, size);
    return room < 0 ? -1 : written(file, syscall(SYS_pwrite64, file, bytes, room, at));
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    return pwrite64(file, bytes, size, at);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    if (room_for(file, 0) < 0) return -1;
    return written(file, syscall(SYS_writev, file, parts, count));
}

ssize_t sendfile64(int target, int source, off64_t *from, size_t size) {
    if (room_for(target, 0) < 0 || (is_ours(source) && is_failing(READ))) return -1;
    return written(target, syscall(SYS_sendfile, target, source, from, size));
}

ssize_t sendfile(int target, int source, off_t *from, size_t size) {
    return sendfile64(target, source, from, size);
}

int ftruncate64(int file, off64_t size) {
    if (!is_ours(file)) return syscall(SYS_ftruncate, file, size);
    if (is_failing(TRUNCATE)) return -1;
    return written(file, 1), syscall(SYS_ftruncate, file, size);
}

int ftruncate(int file, off_t size) { return ftruncate64(file, size); }

int fsync(int file) {
    if (!is_ours(file)) return syscall(SYS_fsync, file);
    if (is_failing(SYNC)) return -1;
    return note_file(file, 0), 0;
}

int fdatasync(int file) { return is_ours(file) ? fsync(file) : syscall(SYS_fdatasync, file); }

/* ── reading ───────────────────────────────────────────────────────────────────────── */

ssize_t read(int file, void *bytes, size_t size) {
    if (is_ours(file) && is_failing(READ)) return -1;
    return syscall(SYS_read, file, bytes, size);
}

ssize_t pread64(int file, void *bytes, size_t size, off64_t at) {
    if (is_ours(file) && is_failing(READ)) return -1;
    return syscall(SYS_pread64, file, bytes, size, at);
}

ssize_t pread(int file, void *bytes, size_t size, off_t at) {
    return pread64(file, bytes, size, at);
}

/* ── names ─────────────────────────────────────────────────────────────────────────── */

static int opened(int directory, const char *path, int flags, mode_t mode) {
    if (is_ours_at(directory, path)) {
        int before = errno;
        int is_new = (flags & O_CREAT) && faccessat(directory, path, F_OK, 0);
        errno = before;
        if (is_failing(is_new ? CREATE : OPEN)) return -1;
        if (is_new) note_name(directory, path);
    }
    return syscall(SYS_openat, directory, path, flags, mode);
}

#define OPENS(directory, path, flags)        \
    va_list rest;                            \
    va_start(rest, flags);                   \
    mode_t mode = va_arg(rest, mode_t);      \
    va_end(rest);                            \
    return opened(directory, path, flags, mode)

int open(const char *path, int flags, ...) { OPENS(AT_FDCWD, path, flags); }
int open64(const char *path, int flags, ...) { OPENS(AT_FDCWD, path, flags); }
int openat(int directory, const char *path, int flags, ...) { OPENS(directory, path, flags); }
int openat64(int directory, const char *path, int flags, ...) { OPENS(directory, path, flags); }

int mkdir(const char *path, mode_t mode) {
    if (is_ours_at(AT_FDCWD, path)) {
        if (is_failing(CREATE)) return -1;
        note_name(AT_FDCWD, path);
    }
    return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int renameat2(int from, const char *source, int to, const char *target, unsigned flags) {
    if (is_ours_at(to, target)) {
        if (is_failing(RENAME)) return -1;
        note_name(to, target);
    }
    return syscall(SYS_renameat2, from, source, to, target, flags);
}

int renameat(int from, const char *source, int to, const char *target) {
    return renameat2(from, source, to, target, 0);
}

int rename(const char *source, const char *target) {
    return renameat2(AT_FDCWD, source, AT_FDCWD, target, 0);
}

int unlinkat(int directory, const char *path, int flags) {
    if (is_ours_at(directory, path) && is_failing(UNLINK)) return -1;
    return syscall(SYS_unlinkat, directory, path, flags);
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
