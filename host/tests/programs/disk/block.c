/* A disk as programs use it: calls of block devices, mappings, alignment, more than memory holds.
 *
 * Run as `block DISK`, with a disk of 96 MiB whose bytes are lost. Says each thing that went wrong
 * and ends with 1, or says "fine". What it leaves: 64-bit words that hold their own offset, but for
 * zeros from 1 MiB to 2 MiB. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define DISK (96 * MIB)

static int wrong;

#define EXPECT(condition)                                                     \
    do {                                                                      \
        if (!(condition)) {                                                   \
            printf("line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
            fflush(stdout);                                                   \
            wrong = 1;                                                        \
        }                                                                     \
    } while (0)

static sigjmp_buf back;

static void on_bus(int number) {
    siglongjmp(back, number);
}

static void calls(int fd, const char *path) {
    uint64_t bytes = 0;
    unsigned long sectors = 0;
    int size = 0, read_only = 1;
    unsigned int physical = 0;
    struct stat about;
    EXPECT(ioctl(fd, BLKGETSIZE64, &bytes) == 0 && bytes == DISK);
    EXPECT(ioctl(fd, BLKGETSIZE, &sectors) == 0 && sectors == DISK / 512);
    EXPECT(ioctl(fd, BLKSSZGET, &size) == 0 && (size == 512 || size == 4096));
    EXPECT(ioctl(fd, BLKPBSZGET, &physical) == 0 && physical >= (unsigned)size);
    EXPECT(ioctl(fd, BLKROGET, &read_only) == 0 && read_only == 0);
    EXPECT(ioctl(fd, BLKGETSIZE64, (void *)8) == -1 && errno == EFAULT);
    EXPECT(ioctl(fd, 0x12fe, 0) == -1 && (errno == ENOTTY || errno == EINVAL));
    EXPECT(fstat(fd, &about) == 0 && S_ISBLK(about.st_mode) && about.st_size == 0);
    EXPECT(major(about.st_rdev) == 254 && minor(about.st_rdev) == 0);
    EXPECT(lseek(fd, 0, SEEK_END) == (off_t)DISK);
    EXPECT(lseek(fd, 5, SEEK_DATA) == -1 && errno == EINVAL);
    EXPECT(lseek(fd, 5, SEEK_HOLE) == -1 && errno == EINVAL);
    EXPECT(read(fd, &bytes, 8) == 0 || lseek(fd, 0, SEEK_CUR) == (off_t)DISK);
    EXPECT(pwrite(fd, "x", 1, DISK) == -1 && errno == ENOSPC);
    EXPECT(pwrite(fd, "xy", 2, DISK - 1) == 1);
    EXPECT(ftruncate(fd, 0) == -1 && errno == EINVAL);
    EXPECT(fsync(fd) == 0 && fdatasync(fd) == 0);
    EXPECT(ioctl(fd, BLKFLSBUF, 0) == 0);
    int other = open(path, O_RDONLY);
    EXPECT(other >= 0 && pwrite(other, "x", 1, 0) == -1 && errno == EBADF);
    close(other);
}

/* Around the cache: whole blocks go, pieces do not; both ways see each other's bytes. */
static void direct(const char *path) {
    int plain = open(path, O_RDWR), fd = open(path, O_RDWR | O_DIRECT);
    EXPECT(fd >= 0 && plain >= 0);
    char *memory = mmap(0, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(pread(fd, memory, 100, 0) == -1 && errno == EINVAL);
    EXPECT(pread(fd, memory, 4096, 100) == -1 && errno == EINVAL);
    EXPECT(pwrite(fd, memory, 511, 0) == -1 && errno == EINVAL);
    memset(memory, 'a', 2 * MIB);
    EXPECT(pwrite(plain, memory, 2 * MIB, MIB + 100) == (ssize_t)(2 * MIB));
    EXPECT(pread(fd, memory + 2 * MIB, 2 * MIB, MIB) == (ssize_t)(2 * MIB));
    EXPECT(memcmp(memory, memory + 2 * MIB + 4096, 2 * MIB - 4096) == 0);
    memset(memory, 'b', MIB);
    /* Addresses within pages, where blocks are that small: in pieces, and not the same piece. */
    int block = 0;
    EXPECT(ioctl(fd, BLKSSZGET, &block) == 0);
    size_t shift = block <= 512 ? 512 : 0;
    struct iovec pieces[3] = {
        {memory + shift, 4096 - shift}, {memory + 8192, 8192}, {memory + 65536, shift}};
    EXPECT(pwritev(fd, pieces, 3, 2 * MIB) == 12288);
    EXPECT(pread(plain, memory + MIB, 12288, 2 * MIB) == 12288);
    EXPECT(memcmp(memory, memory + MIB, 12288) == 0);
    EXPECT(pread(plain, memory + MIB, 1, 2 * MIB + 12288) == 1 && memory[MIB] == 'a');
    /* A store after a fork while the parent's page was read into it. */
    EXPECT(pread(fd, memory, 4096, 2 * MIB) == 4096);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(pread(fd, memory, 4096, 2 * MIB + 16384) == 4096 && memory[0] == 'a');
        _exit(wrong);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT(status == 0 && memory[0] == 'b');
    EXPECT(pwrite(fd, (void *)4096, 4096, 0) == -1 && errno == EFAULT);
    EXPECT(pread(fd, (void *)4096, 4096, 0) == -1 && errno == EFAULT);
    EXPECT(pread(plain, (void *)4096, 4096, 0) == -1 && errno == EFAULT);
    EXPECT(pwrite(plain, (void *)4096, 4096, 4096) == -1 && errno == EFAULT);
    munmap(memory, 4 * MIB);
    close(fd);
    close(plain);
}

static void ranges(int fd) {
    char page[4096];
    uint64_t range[2] = {8 * MIB, MIB}, odd[2] = {8 * MIB + 1, 4096}, beyond[2] = {DISK, 4096};
    memset(page, 'c', sizeof page);
    EXPECT(pwrite(fd, page, 4096, 8 * MIB) == 4096 && pwrite(fd, page, 4096, 9 * MIB) == 4096);
    EXPECT(ioctl(fd, BLKDISCARD, range) == 0);
    EXPECT(pread(fd, page, 4096, 9 * MIB) == 4096 && page[0] == 'c');
    EXPECT(pwrite(fd, page, 4096, 8 * MIB) == 4096);
    EXPECT(ioctl(fd, BLKZEROOUT, range) == 0);
    EXPECT(pread(fd, page, 4096, 8 * MIB) == 4096 && page[0] == 0 && page[4095] == 0);
    EXPECT(ioctl(fd, BLKDISCARD, odd) == -1 && errno == EINVAL);
    EXPECT(ioctl(fd, BLKZEROOUT, beyond) == -1 && errno == EINVAL);
    EXPECT(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 9 * MIB, 4096) == 0);
    EXPECT(pread(fd, page, 4096, 9 * MIB) == 4096 && page[0] == 0);
}

/* Stores through mappings, in a guest that has less memory than the disk has bytes. */
static void mapped(int fd, const char *path) {
    char *shared = mmap(0, DISK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(0, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    EXPECT(shared != MAP_FAILED && private != MAP_FAILED);
    private[100] = 'p';
    shared[101] = 's';
    EXPECT(private[100] == 'p' && shared[100] != 'p');
    EXPECT(msync(shared, 4096, MS_SYNC) == 0);
    int direct = open(path, O_RDONLY | O_DIRECT);
    char *page = aligned_alloc(4096, 4096);
    EXPECT(pread(direct, page, 4096, 0) == 4096 && page[101] == 's' && page[100] != 'p');
    /* A store after the write-back is noted again. */
    shared[101] = 't';
    EXPECT(fsync(fd) == 0);
    EXPECT(pread(direct, page, 4096, 0) == 4096 && page[101] == 't');
    for (uint64_t at = 0; at < DISK; at += 8)
        *(uint64_t *)(shared + at) = at;
    for (uint64_t at = 0; at < DISK; at += 4096)
        if (*(uint64_t *)(shared + at + 8) != at + 8) {
            printf("the mapping lost its bytes at %lu\n", at);
            wrong = 1;
            break;
        }
    memset(shared + MIB, 0, MIB);
    for (uint64_t at = 4 * MIB; at < DISK; at += 65536 + 4096) {
        uint64_t word = 0;
        if (pread(fd, &word, 8, at) != 8 || word != at) {
            printf("read found %lu at %lu\n", word, at);
            wrong = 1;
            break;
        }
    }
    struct sigaction action = {.sa_handler = on_bus};
    sigaction(SIGBUS, &action, 0);
    char *past = mmap(0, 8192, PROT_READ, MAP_SHARED, fd, DISK - 4096);
    int number = sigsetjmp(back, 1);
    if (number == 0) {
        volatile char gone = past[4096];
        EXPECT(!"a page behind the end is read");
        (void)gone;
    }
    EXPECT(number == 0 || number == SIGBUS);
    free(page);
    close(direct);
    /* Nothing is synchronized: what was stored is to be on the disk when all have closed it. */
    munmap(private, 4 * MIB);
    munmap(shared, DISK);
}

/* Touches a page of each MiB from the fourth on; how many major and minor faults that took. */
static void touch(const volatile char *map, long *major, long *minor) {
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (unsigned long at = 4 * MIB; at < 20 * MIB; at += MIB)
        (void)map[at];
    getrusage(RUSAGE_SELF, &after);
    *major = after.ru_majflt - before.ru_majflt;
    *minor = after.ru_minflt - before.ru_minflt;
}

/* A fault that reads the disk is a major one, and only such. */
static void faults(int fd) {
    long major, minor;
    EXPECT(fsync(fd) == 0);
    EXPECT(ioctl(fd, BLKFLSBUF) == 0);
    void *map = mmap(0, DISK, PROT_READ, MAP_PRIVATE, fd, 0);
    EXPECT(map != MAP_FAILED);
    touch(map, &major, &minor);
    EXPECT(major == 16);
    EXPECT(munmap(map, DISK) == 0);
    map = mmap(0, DISK, PROT_READ, MAP_PRIVATE, fd, 0);
    touch(map, &major, &minor);
    EXPECT(major == 0);
    EXPECT(minor >= 16);
    EXPECT(munmap(map, DISK) == 0);
}

int main(int count, char **words) {
    int fd = count == 2 ? open(words[1], O_RDWR) : -1;
    if (fd < 0) {
        perror("a disk is needed");
        return 2;
    }
    calls(fd, words[1]);
    direct(words[1]);
    ranges(fd);
    mapped(fd, words[1]);
    faults(fd);
    close(fd);
    puts(wrong ? "wrong" : "fine");
    return wrong;
}
