/* What calls answer to arguments that ask for little: bad descriptors, flags, numbers and addresses. */
#include "say.h"
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define BOTH (PROT_READ | PROT_WRITE)

static long futex(void *a, int op, long v, void *t, void *b, long w)
{
	return syscall(SYS_futex, a, op, v, t, b, w);
}

static void futexes(char *page)
{
	char *none = mmap(0, PAGE, PROT_NONE, ANON, -1, 0);
	char *ro = mmap(0, PAGE, PROT_READ, ANON, -1, 0);
	TRY(futex(HOLE, FUTEX_WAKE, 1, 0, 0, 0));
	TRY(futex(HOLE, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0));
	TRY(futex(none, FUTEX_WAKE, 1, 0, 0, 0));
	TRY(futex(ro, FUTEX_WAKE, 1, 0, 0, 0));
	int cut = MUST(memfd_create("cut", 0));
	MUST(ftruncate(cut, PAGE));
	char *gone = MUST(mmap(0, PAGE, BOTH, MAP_SHARED, cut, 0));
	MUST(ftruncate(cut, 0));
	TRY(futex(gone, FUTEX_WAKE, 1, 0, 0, 0));
	close(cut);
	TRY(futex(page, FUTEX_REQUEUE, 1, (void *)1, HOLE, 0));
	TRY(futex(HOLE, FUTEX_REQUEUE, 1, (void *)1, page, 0));
	TRY(futex(HOLE, FUTEX_REQUEUE_PRIVATE, 1, (void *)1, page, 0));
	TRY(futex(HOLE, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)1, page, 0));
	TRY(futex(page, FUTEX_WAKE_OP, 1, (void *)1, HOLE, FUTEX_OP(FUTEX_OP_ADD, 1, 0, 0)));
	TRY(futex(page, FUTEX_WAKE_OP, 1, (void *)1, ro, FUTEX_OP(FUTEX_OP_ADD, 1, 0, 0)));
	TRY(futex(HOLE, FUTEX_WAKE_OP, 1, (void *)1, page, FUTEX_OP(FUTEX_OP_ADD, 1, 0, 0)));
	TRY(futex(page, FUTEX_WAKE_OP, 1, (void *)1, page, 7u << 28));
	TRY(futex(page, FUTEX_WAIT, 77, 0, 0, 0));
	TRY(futex(page, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, 0, 0, 0));
	TRY(futex(page, FUTEX_FD, 1, 0, 0, 0));
	TRY(futex(page, 99, 1, 0, 0, 0));
	TRY(futex(page, FUTEX_WAIT_BITSET, 0, 0, 0, 0));
	TRY(futex(page, FUTEX_WAKE_BITSET, 1, 0, 0, 0));
	TRY(futex(page + 1, FUTEX_WAKE, 1, 0, 0, 0));
	TRY(futex(page, FUTEX_WAKE, -1, 0, 0, 0));
	TRY(futex(page, FUTEX_WAKE, 0, 0, 0, 0));
	TRY(futex(page, FUTEX_REQUEUE, -1, 0, page + 4, 0));
	TRY(futex(page, FUTEX_REQUEUE, 0, (void *)-1, page + 4, 0));
	struct timespec bad = { 0, 1000000000 }, minus = { -1, 0 };
	TRY(futex(page, FUTEX_WAIT, 0, &bad, 0, 0));
	TRY(futex(page, FUTEX_WAIT, 0, &minus, 0, 0));
	TRY(futex(page, FUTEX_WAIT, 0, (void *)HOLE, 0, 0));
	TRY(syscall(SYS_set_robust_list, 0, 23));
	long head, size;
	TRY(syscall(SYS_get_robust_list, -1, &head, &size));
	TRY(syscall(SYS_get_robust_list, 999999, &head, &size));
}

static void barriers(void)
{
	HOLDS((syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) & 31) == 31);
	TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0));
	TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
	TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
	TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
	IN_CHILD("a child of a process that registered",
		TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)));
	TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0));
	TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
	TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
	TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
	TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 1, 0));
	TRY(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0));
	TRY(syscall(SYS_membarrier, 1 << 12, 0, 0));
}

static void memory(char *page)
{
	int f = MUST(open("map", O_RDWR | O_CREAT, 0600));
	MUST(ftruncate(f, 4 * PAGE));
	int p = MUST(open("map", O_PATH));
	int w = MUST(open("map", O_WRONLY));
	TRY(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, p, 0));
	TRY(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, w, 0));
	TRY(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, 999, 0));
	TRY(mmap(0, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, f, 0));
	TRY(mmap(0, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0));
	DO(mmap(0, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_NORESERVE | MAP_POPULATE | MAP_LOCKED, f, 0));
	DO(mmap(0, PAGE, PROT_READ, MAP_SHARED | MAP_SYNC, f, 0));
	TRY(mmap(0, 0, PROT_READ, MAP_SHARED, f, 0));
	TRY(mmap(0, PAGE, PROT_READ, MAP_SHARED, f, 1));
	TRY(mmap(0, PAGE, PROT_READ, 0, f, 0));
	TRY(mmap(0, PAGE, PROT_READ, MAP_SHARED, f, 0x7ffffffffffff000));
	TRY(mmap(0, -1ul, PROT_READ, MAP_SHARED, f, 0));
	int z = MUST(open("/dev/zero", O_RDONLY));
	TRY(mmap(0, PAGE, BOTH, MAP_SHARED, z, 0));
	char *m = MUST(mmap(0, PAGE, PROT_READ, MAP_SHARED, z, 0));
	TRY(mprotect(m, PAGE, BOTH));
	m = MUST(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, z, 0));
	TRY(mprotect(m, PAGE, BOTH));
	m = MUST(mmap(0, PAGE, PROT_READ, MAP_SHARED, MUST(open("map", O_RDONLY)), 0));
	TRY(mprotect(m, PAGE, BOTH));
	TRY(mprotect(m, PAGE, 0x100));
	TRY(mprotect(m + 1, PAGE, PROT_READ));
	TRY(mprotect(HOLE, PAGE, PROT_READ));
	TRY(mprotect(HOLE, 0, PROT_READ));
	m = MUST(mmap(0, 2 * PAGE, BOTH, MAP_SHARED, f, 0));
	TRY(msync(m, PAGE, MS_INVALIDATE));
	TRY(mlock(m, PAGE));
	TRY(msync(m, PAGE, MS_INVALIDATE));
	TRY(msync(m, PAGE, MS_SYNC | MS_INVALIDATE));
	TRY(msync(m + PAGE, PAGE, MS_INVALIDATE));
	TRY(madvise(m, PAGE, MADV_DONTNEED));
	TRY(madvise(m, PAGE, MADV_REMOVE));
	TRY(msync(m, PAGE, MS_SYNC | MS_ASYNC));
	TRY(msync(m + 1, PAGE, MS_SYNC));
	TRY(msync(HOLE, PAGE, MS_SYNC));
	TRY(msync((void *)-4096l, PAGE, MS_SYNC));
	TRY(msync(HOLE, PAGE, 8));
	TRY(munlock(m, PAGE));
	TRY(munlock(HOLE, PAGE));
	TRY(mlock(HOLE, PAGE));
	TRY(mlock((void *)-4096l, PAGE));
	TRY(mlock((void *)-4096l, 8192));
	TRY(mlock(MUST(mmap(0, PAGE, PROT_NONE, ANON, -1, 0)), PAGE));
	TRY(mlock(MUST(mmap(0, 2 * PAGE, PROT_READ, MAP_SHARED, f, 3 * PAGE)), 2 * PAGE));
	TRY(mlock2(page, PAGE, 2));
	TRY(mlockall(0));
	TRY(mlockall(MCL_ONFAULT));
	TRY(mlockall(8));
	TRY(munmap(HOLE, 0));
	TRY(munmap(HOLE + 1, PAGE));
	TRY(munmap((void *)-4096l, PAGE));
	TRY(munmap(HOLE, PAGE));
	TRY(madvise(HOLE, PAGE, MADV_NORMAL));
	TRY(madvise(page, PAGE, 77));
	TRY(madvise(page + 1, PAGE, MADV_NORMAL));
	TRY(madvise(page, 0, MADV_NORMAL));
	m = MUST(mmap(0, PAGE, BOTH, ANON, -1, 0));
	TRY(madvise(m, PAGE, MADV_FREE));
	MUST(mlock(m, PAGE));
	TRY(madvise(m, PAGE, MADV_FREE));
	TRY(madvise(m, PAGE, MADV_COLD));
	TRY(madvise(MUST(mmap(0, PAGE, PROT_NONE, ANON, -1, 0)), PAGE, MADV_POPULATE_READ));
	TRY(madvise(MUST(mmap(0, PAGE, PROT_READ, ANON, -1, 0)), PAGE, MADV_POPULATE_WRITE));
	TRY(madvise(MUST(mmap(0, PAGE, BOTH, MAP_SHARED, f, 0)), PAGE, MADV_FREE));
	TRY(madvise(MUST(mmap(0, PAGE, PROT_READ, MAP_SHARED, f, 0)), PAGE, MADV_WIPEONFORK));
	TRY(madvise(MUST(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, f, 0)), PAGE, MADV_WIPEONFORK));
	/* The range goes on behind the mapping. */
	m = MUST(mmap(0, 4 * PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	MUST(munmap(m + 2 * PAGE, 2 * PAGE));
	TRY(madvise(m, 4 * PAGE, MADV_WIPEONFORK));
	TRY(madvise(m, 4 * PAGE, MADV_WILLNEED));
	TRY(madvise(m, 4 * PAGE, MADV_NORMAL));
	unsigned char vec[4];
	TRY(mincore(HOLE, PAGE, vec));
	TRY(mincore(page + 1, PAGE, vec));
	TRY(mincore(page, PAGE, (void *)HOLE));
	TRY(mincore(page, 0, vec));
	TRY(mremap(HOLE, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
	TRY(mremap(page, PAGE, 0, MREMAP_MAYMOVE));
	TRY(mremap(page, PAGE, PAGE, 8));
	TRY(mremap(page + 1, PAGE, PAGE, MREMAP_MAYMOVE));
	TRY(mremap(page, PAGE, PAGE, MREMAP_FIXED | MREMAP_MAYMOVE, page));
	TRY(mremap(page, PAGE, PAGE, MREMAP_FIXED, HOLE));
	IN_CHILD("a user", MUST(setresuid(1000, 1000, 1000));
		TRY(mremap(HOLE, PAGE, PAGE, MREMAP_FIXED | MREMAP_MAYMOVE, 0));
		TRY(mremap(page, PAGE, PAGE, MREMAP_FIXED | MREMAP_MAYMOVE, 0));
		TRY(mremap(page, PAGE, PAGE, MREMAP_FIXED | MREMAP_MAYMOVE, PAGE));
		HOLDS(mremap(page, PAGE, PAGE, MREMAP_FIXED | MREMAP_MAYMOVE, 65536) == (void *)65536));
	close(f); close(p); close(w);
}

static void path_descriptors(void)
{
	int p = MUST(open(".", O_PATH)), e = MUST(epoll_create1(0));
	int f = MUST(open("some", O_CREAT | O_RDWR, 0700)), q = MUST(open("some", O_PATH));
	struct epoll_event event = { EPOLLIN };
	struct sockaddr name;
	socklen_t length = sizeof name;
	char buffer[8];
	struct stat st;
	struct statfs fs;
	TRY(epoll_ctl(e, EPOLL_CTL_ADD, q, &event));
	TRY(epoll_ctl(q, EPOLL_CTL_ADD, e, &event));
	TRY(epoll_wait(q, &event, 1, 0));
	TRY(epoll_wait(f, &event, 1, 0));
	TRY(accept(q, 0, 0));
	TRY(accept(f, 0, 0));
	TRY(accept(999, 0, 0));
	TRY(bind(q, &name, length));
	TRY(listen(q, 1));
	TRY(connect(q, &name, length));
	TRY(getsockname(q, &name, &length));
	TRY(getpeername(q, &name, &length));
	TRY(setsockopt(q, SOL_SOCKET, SO_REUSEADDR, buffer, 4));
	TRY(getsockopt(q, SOL_SOCKET, SO_TYPE, buffer, &length));
	TRY(shutdown(q, 0));
	TRY(send(q, buffer, 1, 0));
	TRY(recv(q, buffer, 1, 0));
	TRY(read(q, buffer, 1));
	TRY(write(q, buffer, 1));
	TRY(pread(q, buffer, 1, 0));
	TRY(pwrite(q, buffer, 1, 0));
	TRY(lseek(q, 0, SEEK_SET));
	TRY(ftruncate(q, 0));
	TRY(fallocate(q, 0, 0, 1));
	TRY(fsync(q));
	TRY(fdatasync(q));
	TRY(syncfs(q));
	TRY(sync_file_range(q, 0, 0, 0));
	TRY(posix_fadvise(q, 0, 0, 0));
	TRY(readahead(q, 0, 1));
	TRY(fchmod(q, 0700));
	TRY(fchown(q, 0, 0));
	TRY(futimens(q, 0));
	TRY(flock(q, LOCK_SH));
	TRY(fgetxattr(q, "user.x", buffer, 8));
	TRY(flistxattr(q, buffer, 8));
	TRY(fsetxattr(q, "user.x", buffer, 8, 0));
	TRY(fremovexattr(q, "user.x"));
	TRY(syscall(SYS_getdents64, p, buffer, 8));
	TRY(fstat(q, &st));
	TRY(fstatfs(q, &fs));
	TRY(fchdir(q));
	TRY(fchdir(p));
	TRY(sendfile(1, q, 0, 1));
	TRY(sendfile(q, f, 0, 1));
	TRY(copy_file_range(q, 0, f, 0, 1, 0));
	TRY(copy_file_range(f, 0, q, 0, 1, 0));
	TRY(splice(q, 0, 1, 0, 1, 0));
	TRY(ioctl(q, 0x541b, buffer));
	TRY(fcntl(q, F_GETLK, buffer));
	TRY(fcntl(q, F_SETFL, 0));
	TRY(fcntl(q, F_GETOWN));
	TRY(fcntl(q, F_GETPIPE_SZ));
	TRY(fcntl(q, F_ADD_SEALS, 0));
	TRY(timerfd_gettime(q, (void *)buffer));
	TRY(syscall(SYS_readlinkat, q, "", buffer, 8));
	HOLDS(poll((struct { int fd; short events, found; }[1]){ { q, 1, 0 } }, 1, 0) == 1);
	close(p); close(e); close(f); close(q);
}

static void descriptors(void)
{
	char *const args[] = { "x", 0 };
	char buffer[8];
	struct iovec v = { buffer, 1 };
	int f = MUST(open("plain", O_CREAT | O_RDWR, 0600)), d = MUST(open(".", O_RDONLY));
	int r = MUST(open("plain", O_RDONLY)), w = MUST(open("plain", O_WRONLY));
	int pipes[2];
	MUST(pipe(pipes));
	TRY(syscall(SYS_execveat, -1, "x", args, args + 1, 0));
	TRY(syscall(SYS_execveat, 999, "", args, args + 1, AT_EMPTY_PATH));
	TRY(syscall(SYS_execveat, f, "x", args, args + 1, 0));
	TRY(syscall(SYS_execveat, d, "plain", args, args + 1, 0));
	TRY(syscall(SYS_execveat, AT_FDCWD, "", args, args + 1, 0));
	TRY(syscall(SYS_execveat, AT_FDCWD, "", args, args + 1, AT_EMPTY_PATH));
	TRY(syscall(SYS_execveat, d, "", args, args + 1, AT_EMPTY_PATH));
	TRY(syscall(SYS_execveat, d, "nothing", args, args + 1, 0));
	TRY(syscall(SYS_execveat, d, "plain", args, args + 1, 0xffff));
	MUST(symlink("plain", "link"));
	TRY(syscall(SYS_execveat, d, "link", args, args + 1, AT_SYMLINK_NOFOLLOW));
	TRY(pwritev2(-1, &v, 1, 0, 0));
	TRY(pwritev2(r, &v, 1, 0, 0));
	TRY(pwritev2(f, &v, 1, -2, 0));
	TRY(pwritev2(f, &v, -1, 0, 0));
	TRY(pwritev2(f, &v, 1, 0, 0x100));
	TRY(pwritev2(pipes[1], &v, 1, 0, 0));
	TRY(pwritev2(f, (void *)HOLE, 1, 0, 0));
	TRY(pwritev2(f, (void *)HOLE, 1025, 0, 0));
	TRY(pwritev2(-1, (void *)HOLE, 1, 0, 0));
	TRY(pwritev2(-1, &v, 1, -2, 0));
	TRY(pwritev2(-1, &v, 1, 0, 0x100));
	TRY(pwritev2(f, &v, 1, 0, 0x1f));
	TRY(pwritev2(f, &v, 1, 0, RWF_NOWAIT));
	TRY(preadv2(-1, &v, 1, 0, 0));
	TRY(preadv2(w, &v, 1, 0, 0));
	TRY(preadv2(f, &v, 1, -2, 0));
	TRY(preadv2(f, &v, 1, 0, 0x100));
	TRY(preadv2(pipes[0], &v, 1, 0, 0));
	TRY(preadv2(d, &v, 1, 0, 0));
	TRY(preadv(f, &v, 1, -1));
	TRY(pread(f, buffer, 1, -1));
	TRY(pwrite(f, buffer, 1, -1));
	TRY(pread(pipes[0], buffer, 1, 0));
	TRY(readv(f, &v, -1));
	TRY(readv(f, &v, 1025));
	TRY(readv(d, &v, 1));
	TRY(writev(r, &v, 1));
	TRY(lseek(pipes[0], 0, SEEK_SET));
	TRY(lseek(f, -1, SEEK_SET));
	TRY(lseek(f, 0, 9));
	TRY(ftruncate(r, 0));
	TRY(ftruncate(f, -1));
	TRY(ftruncate(pipes[0], 0));
	TRY(ftruncate(d, 0));
	TRY(truncate(".", 0));
	TRY(truncate("plain", -1));
	TRY(fallocate(f, 0, 0, 0));
	TRY(fallocate(f, 0, -1, 1));
	TRY(fallocate(f, 0x80, 0, 1));
	TRY(fallocate(f, 2, 0, 1));
	TRY(fallocate(pipes[1], 0, 0, 1));
	TRY(fallocate(d, 0, 0, 1));
	TRY(fallocate(r, 0, 0, 1));
	TRY(fsync(pipes[0]));
	TRY(fdatasync(pipes[0]));
	TRY(sync_file_range(f, -1, 0, 0));
	TRY(sync_file_range(f, 0, 0, 8));
	TRY(sync_file_range(pipes[0], 0, 0, 0));
	TRY(posix_fadvise(f, 0, 0, 99));
	TRY(posix_fadvise(pipes[0], 0, 0, 0));
	TRY(posix_fadvise(f, 0, -1, 0));
	TRY(readahead(w, 0, 1));
	TRY(readahead(pipes[0], 0, 1));
	TRY(readahead(d, 0, 1));
	TRY(flock(f, 77));
	TRY(flock(f, LOCK_SH | LOCK_MAND));
	TRY(sendfile(pipes[1], pipes[0], 0, 1));
	TRY(sendfile(pipes[1], w, 0, 1));
	TRY(sendfile(r, f, 0, 1));
	TRY(copy_file_range(f, 0, f, 0, 1, 1));
	TRY(copy_file_range(pipes[0], 0, f, 0, 1, 0));
	TRY(copy_file_range(d, 0, f, 0, 1, 0));
	TRY(copy_file_range(f, 0, r, 0, 1, 0));
	TRY(close_range(5, 4, 0));
	TRY(close_range(900, 999, 8));
	TRY(dup2(f, -1));
	TRY(dup2(f, 1 << 24));
	TRY(dup3(f, f, 0));
	TRY(dup3(f, 50, 1));
	TRY(fcntl(f, 9999));
	TRY(fcntl(f, F_DUPFD, -1));
	TRY(fcntl(f, F_DUPFD, 1 << 24));
	TRY(fcntl(f, F_SETPIPE_SZ, 4096));
	TRY(fcntl(pipes[0], F_SETPIPE_SZ, -1));
	TRY(fcntl(pipes[0], F_SETPIPE_SZ, 0));
	TRY(fcntl(pipes[0], F_GETSIG));
	TRY(fcntl(pipes[0], F_GETOWN));
	TRY(fcntl(pipes[0], F_ADD_SEALS, 1));
	TRY(fcntl(f, F_GET_SEALS));
	TRY(fcntl(r, F_ADD_SEALS, 1));
	TRY(ioctl(f, 0x5401, buffer));
	TRY(ioctl(pipes[0], 0x5401, buffer));
	TRY(ioctl(f, 0x541b, (void *)HOLE));
	TRY(pipe2(pipes, 0x10));
	TRY(pipe((void *)HOLE));
	TRY(eventfd(0, 0x10));
	TRY(epoll_create(0));
	TRY(epoll_create1(1));
	TRY(timerfd_create(99, 0));
	TRY(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0));
	TRY(timerfd_create(CLOCK_TAI, 0));
	TRY(timerfd_create(CLOCK_MONOTONIC, 1));
	TRY(timerfd_gettime(f, (void *)buffer));
	TRY(timerfd_gettime(-1, (void *)buffer));
	TRY(memfd_create("x", 0x80));
	TRY(socket(AF_UNIX, 99, 0));
	TRY(socket(99, SOCK_STREAM, 0));
	TRY(socketpair(AF_UNIX, SOCK_STREAM, 7, pipes));
	TRY(socketpair(99, SOCK_STREAM, 0, pipes));
	TRY(openat(f, "x", O_RDONLY));
	TRY(openat(999, "x", O_RDONLY));
	TRY(open("plain", O_RDONLY | O_DIRECTORY));
	TRY(open(".", O_WRONLY));
	TRY(open("plain/", O_RDONLY));
	TRY(open("", O_RDONLY));
	TRY(open((void *)HOLE, O_RDONLY));
	TRY(open(".", O_RDWR | O_CREAT, 0600));
	TRY(open(".", O_TMPFILE | O_RDONLY, 0600));
	TRY(linkat(AT_FDCWD, "plain", AT_FDCWD, "new", 0x8000));
	TRY(renameat2(AT_FDCWD, "plain", AT_FDCWD, "new", 0x80));
	TRY(renameat2(AT_FDCWD, "plain", AT_FDCWD, "new", RENAME_EXCHANGE | RENAME_NOREPLACE));
	TRY(renameat2(AT_FDCWD, "plain", AT_FDCWD, "new", RENAME_EXCHANGE));
	TRY(unlinkat(AT_FDCWD, "plain", 0x10));
	TRY(fchmodat(AT_FDCWD, "plain", 0600, 0x800));
	TRY(fchownat(AT_FDCWD, "plain", 0, 0, 0x80));
	TRY(utimensat(AT_FDCWD, "plain", 0, 0x80));
	TRY(syscall(SYS_faccessat2, AT_FDCWD, "plain", 0, 0x1));
	TRY(access("plain", 8));
	TRY(readlink("plain", buffer, 8));
	TRY(readlink("link", buffer, 0));
	TRY(mknod("node", 0170000, 0));
	TRY(mkdir("plain", 0700));
	TRY(rmdir("."));
	TRY(rmdir("plain"));
	TRY(unlink("."));
	TRY(chroot("plain"));
	TRY(syscall(SYS_statx, AT_FDCWD, "plain", 0x80000000, 0, buffer));
	TRY(syscall(SYS_statx, AT_FDCWD, "plain", 0, 0x80000000, buffer));
	TRY(syscall(SYS_getdents64, f, buffer, 8));
	TRY(syscall(SYS_getdents64, d, buffer, 8));
	TRY(syscall(SYS_getcwd, buffer, 1));
	TRY(syscall(SYS_getrandom, buffer, 8, 0x10));
	TRY(syscall(SYS_getrandom, buffer, 8, 6));
	TRY(syscall(SYS_getrandom, HOLE, 8, 0));
}

static void times(void)
{
	struct timespec t = { 0, 1 }, bad = { 0, 1000000000 }, minus = { -1, 0 };
	struct itimerspec it = { { 0, 0 }, { 0, 0 } };
	timer_t timer;
	int id;
	TRY(syscall(SYS_clock_nanosleep, 99, 0, &t, 0));
	TRY(syscall(SYS_clock_nanosleep, -1, 0, &t, 0));
	TRY(syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &t, 0));
	TRY(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC_RAW, 0, &t, 0));
	TRY(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC_COARSE, 0, &t, 0));
	TRY(syscall(SYS_clock_nanosleep, CLOCK_REALTIME_COARSE, 0, &t, 0));
	TRY(syscall(SYS_clock_nanosleep, CLOCK_BOOTTIME, 0, &t, 0));
	TRY(syscall(SYS_clock_nanosleep, CLOCK_TAI, 0, &t, 0));
	TRY(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &bad, 0));
	TRY(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &minus, 0));
	TRY(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0));
	TRY(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, HOLE, 0));
	TRY(syscall(SYS_clock_nanosleep, 99, 0, HOLE, 0));
	TRY(nanosleep(&bad, 0));
	TRY(syscall(SYS_clock_gettime, 99, &t));
	TRY(syscall(SYS_clock_gettime, 10, &t));
	TRY(syscall(SYS_clock_gettime, 12, &t));
	TRY(syscall(SYS_clock_gettime, -999998, &t));
	TRY(syscall(SYS_clock_gettime, 0, HOLE));
	TRY(syscall(SYS_clock_getres, 99, &t));
	TRY(syscall(SYS_clock_getres, CLOCK_REALTIME_COARSE, 0));
	TRY(syscall(SYS_clock_settime, 99, &t));
	TRY(syscall(SYS_clock_settime, CLOCK_MONOTONIC, &t));
	TRY(syscall(SYS_clock_settime, CLOCK_REALTIME, &bad));
	TRY(syscall(SYS_clock_settime, CLOCK_REALTIME, HOLE));
	TRY(syscall(SYS_timer_create, 99, 0, &id));
	TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC_RAW, 0, &id));
	TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC_COARSE, 0, &id));
	TRY(syscall(SYS_timer_create, CLOCK_REALTIME, 0, HOLE));
	struct sigevent e = { .sigev_notify = 77, .sigev_signo = SIGUSR1 };
	TRY(syscall(SYS_timer_create, CLOCK_REALTIME, &e, &id));
	e.sigev_notify = SIGEV_SIGNAL, e.sigev_signo = 99;
	TRY(syscall(SYS_timer_create, CLOCK_REALTIME, &e, &id));
	e.sigev_signo = 0;
	TRY(syscall(SYS_timer_create, CLOCK_REALTIME, &e, &id));
	e.sigev_notify = SIGEV_NONE, e.sigev_signo = 99;
	TRY(syscall(SYS_timer_create, CLOCK_REALTIME, &e, &id));
	TRY(syscall(SYS_timer_create, CLOCK_PROCESS_CPUTIME_ID, 0, &id));
	TRY(syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, 0, &id));
	TRY(syscall(SYS_timer_settime, 9999, 0, &it, 0));
	TRY(syscall(SYS_timer_settime, id, 0, 0, 0));
	TRY(syscall(SYS_timer_settime, id, 0, HOLE, 0));
	it.it_value = bad;
	TRY(syscall(SYS_timer_settime, id, 0, &it, 0));
	it.it_value = minus;
	TRY(syscall(SYS_timer_settime, id, 0, &it, 0));
	TRY(syscall(SYS_timer_gettime, 9999, &it));
	TRY(syscall(SYS_timer_getoverrun, 9999));
	TRY(syscall(SYS_timer_delete, 9999));
	struct itimerval iv = { { 0, 0 }, { 0, 1000000 } };
	TRY(setitimer(ITIMER_REAL, &iv, 0));
	TRY(syscall(SYS_setitimer, 9, &iv, 0));
	TRY(syscall(SYS_getitimer, 9, &iv));
}

static void signals(void)
{
	siginfo_t info = { .si_code = SI_QUEUE };
	sigset_t set;
	sigemptyset(&set);
	TRY(kill(999999, 0));
	TRY(kill(getpid(), 99));
	TRY(kill(999999, 99));
	TRY(syscall(SYS_tkill, 0, 0));
	TRY(syscall(SYS_tkill, 999999, 99));
	TRY(syscall(SYS_tgkill, 1, getpid(), 0));
	TRY(syscall(SYS_tgkill, -1, getpid(), 0));
	TRY(syscall(SYS_rt_sigqueueinfo, 999999, SIGUSR1, &info));
	TRY(syscall(SYS_rt_sigqueueinfo, -1, SIGUSR1, &info));
	TRY(syscall(SYS_rt_sigqueueinfo, getpid(), 99, &info));
	TRY(syscall(SYS_rt_sigqueueinfo, getpid(), 0, HOLE));
	TRY(syscall(SYS_rt_sigqueueinfo, getpid(), 0, &info));
	info.si_code = SI_USER;
	TRY(syscall(SYS_rt_sigqueueinfo, getppid(), 0, &info));
	TRY(syscall(SYS_rt_tgsigqueueinfo, getpid(), 0, 0, &info));
	TRY(syscall(SYS_rt_tgsigqueueinfo, 0, getpid(), 0, &info));
	TRY(syscall(SYS_rt_tgsigqueueinfo, 0, getpid(), 0, HOLE));
	TRY(syscall(SYS_rt_tgsigqueueinfo, getpid(), getppid(), 0, &info));
	TRY(syscall(SYS_tgkill, -1, 999999, 0));
	TRY(syscall(SYS_tgkill, 1, -1, 0));
	/* Until it is waited for, a process that has ended has its number. */
	pid_t zombie = fork();
	if (!zombie)
		_exit(0);
	siginfo_t ended;
	waitid(P_PID, zombie, &ended, WEXITED | WNOWAIT);
	unsigned header[2] = { 0x20080522, zombie }, data[6] = { 0 };
	DO(syscall(SYS_tkill, zombie, 0));
	DO(syscall(SYS_tkill, zombie, SIGUSR1));
	TRY(syscall(SYS_tkill, zombie, 99));
	DO(syscall(SYS_tgkill, zombie, zombie, SIGKILL));
	TRY(syscall(SYS_tgkill, getpid(), zombie, 0));
	info.si_code = SI_QUEUE;
	DO(syscall(SYS_rt_tgsigqueueinfo, zombie, zombie, SIGUSR1, &info));
	info.si_code = SI_USER;
	TRY(syscall(SYS_rt_tgsigqueueinfo, zombie, zombie, SIGUSR1, &info));
	DO(syscall(SYS_capget, header, data));
	waitpid(zombie, 0, 0);
	TRY(syscall(SYS_tkill, zombie, 0));
	TRY(syscall(SYS_capget, header, data));
	TRY(syscall(SYS_rt_sigprocmask, 99, &set, 0, 8));
	TRY(syscall(SYS_rt_sigprocmask, 99, 0, 0, 8));
	TRY(syscall(SYS_rt_sigprocmask, 0, &set, 0, 16));
	TRY(syscall(SYS_rt_sigpending, &set, 16));
	TRY(syscall(SYS_rt_sigaction, SIGKILL, &info, 0, 8));
	TRY(syscall(SYS_rt_sigaction, 99, 0, 0, 8));
	TRY(syscall(SYS_rt_sigsuspend, &set, 4));
	TRY(syscall(SYS_rt_sigtimedwait, &set, 0, 0, 4));
	struct timespec none = { 0, 0 }, bad = { 0, -1 };
	TRY(syscall(SYS_rt_sigtimedwait, &set, 0, &none, 8));
	TRY(syscall(SYS_rt_sigtimedwait, &set, 0, &bad, 8));
	stack_t stack = { .ss_flags = 77, .ss_size = 65536 };
	TRY(sigaltstack(&stack, 0));
	stack.ss_flags = 0, stack.ss_size = 100;
	TRY(sigaltstack(&stack, 0));
	TRY(syscall(SYS_signalfd4, -1, &set, 4, 0));
	TRY(syscall(SYS_signalfd4, -1, &set, 8, 1));
	TRY(syscall(SYS_signalfd4, 1, &set, 8, 0));
	TRY(syscall(SYS_signalfd4, 999, &set, 8, 0));
	TRY(syscall(SYS_signalfd4, -1, HOLE, 8, 0));
	DO(syscall(SYS_signalfd, -1, &set, 8));
}

/* A thread without a class of its own counts by its policy and nice value, if the group is asked. */
static void effective_priorities(void)
{
	struct sched_param none = { 0 };
	int policies[] = { SCHED_OTHER, SCHED_BATCH, SCHED_IDLE };
	setpgid(0, 0);
	for (int i = 0; i < 3; i++) {
		MUST(setpriority(PRIO_PROCESS, 0, 5 * i));
		MUST(sched_setscheduler(0, policies[i], &none));
		for (int own = 0; own < 3; own++) {
			MUST(syscall(SYS_ioprio_set, 1, 0, own == 2 ? 1 << 13 | 1 : 8 * own));
			TRY(syscall(SYS_ioprio_get, 2, 0));
		}
	}
}

static void scheduling(void)
{
	struct sched_param p = { 0 };
	for (int policy = -1; policy < 8; policy++)
		say("policy %d: max %d min %d", policy, sched_get_priority_max(policy), sched_get_priority_min(policy));
	struct timespec t;
	TRY(syscall(SYS_sched_rr_get_interval, -1, &t));
	TRY(syscall(SYS_sched_rr_get_interval, 999999, &t));
	TRY(syscall(SYS_sched_rr_get_interval, 0, HOLE));
	TRY(syscall(SYS_sched_setscheduler, -1, 0, &p));
	TRY(syscall(SYS_sched_setscheduler, 999999, 0, &p));
	TRY(syscall(SYS_sched_setscheduler, 0, 0, 0));
	TRY(syscall(SYS_sched_setscheduler, 0, 0, HOLE));
	TRY(syscall(SYS_sched_setscheduler, 0, -1, &p));
	TRY(syscall(SYS_sched_setscheduler, 0, 4, &p));
	TRY(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &p));
	TRY(syscall(SYS_sched_setscheduler, 0, 6, &p));
	TRY(syscall(SYS_sched_getscheduler, -1));
	TRY(syscall(SYS_sched_getscheduler, 999999));
	TRY(syscall(SYS_sched_getparam, -1, &p));
	TRY(syscall(SYS_sched_getparam, 0, 0));
	TRY(syscall(SYS_sched_getparam, 999999, &p));
	TRY(syscall(SYS_sched_setparam, -1, &p));
	TRY(syscall(SYS_sched_setparam, 0, 0));
	p.sched_priority = 1;
	TRY(syscall(SYS_sched_setparam, 0, &p));
	TRY(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &p));
	p.sched_priority = 100;
	TRY(syscall(SYS_sched_setscheduler, 0, SCHED_RR, &p));
	TRY(syscall(SYS_sched_setaffinity, 0, 0, &t));
	TRY(syscall(SYS_sched_setaffinity, -1, 8, &t));
	TRY(syscall(SYS_sched_getaffinity, 0, 4, &t));
	TRY(syscall(SYS_sched_getaffinity, -1, 8, &t));
	TRY(syscall(SYS_getpriority, 9, 0));
	TRY(syscall(SYS_getpriority, 0, -1));
	TRY(syscall(SYS_getpriority, 1, 999999));
	TRY(syscall(SYS_getpriority, 2, 999999));
	TRY(syscall(SYS_setpriority, 9, 0, 0));
	TRY(syscall(SYS_setpriority, 0, 999999, 0));
	TRY(syscall(SYS_ioprio_get, 1, 0));
	TRY(syscall(SYS_ioprio_get, 9, 0));
	TRY(syscall(SYS_ioprio_get, 1, 999999));
	TRY(syscall(SYS_ioprio_set, 9, 0, 0));
	TRY(syscall(SYS_ioprio_set, 1, 999999, 2 << 13 | 4));
	TRY(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 8));
	TRY(syscall(SYS_ioprio_set, 1, 0, 5 << 13));
	TRY(syscall(SYS_ioprio_set, 1, 0, 0 << 13 | 1));
	TRY(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 7));
	TRY(syscall(SYS_ioprio_get, 1, 0));
	TRY(syscall(SYS_ioprio_get, 1, getpid()));
	IN_CHILD("heir", TRY(syscall(SYS_ioprio_get, 1, 0)));
	TRY(syscall(SYS_ioprio_set, 1, 0, 3 << 13 | 7));
	TRY(syscall(SYS_ioprio_get, 1, 0));
	TRY(syscall(SYS_ioprio_set, 1, 0, 1 << 13 | 2));
	TRY(syscall(SYS_ioprio_get, 1, 0));
	TRY(syscall(SYS_ioprio_get, 2, getpgrp()));
	TRY(syscall(SYS_ioprio_get, 3, 4711));
	TRY(syscall(SYS_ioprio_set, 3, 4711, 2 << 13 | 4));
	/* The level is in three bits, hints are in ten more. Bits above the class are lost. */
	int odd[] = { 8, 1 << 13 | 8, 2 << 13 | 15, 3 << 13 | 8191, 4 << 13, 7 << 13, 8 << 13, 8 << 13 | 9, 10 << 13 | 3, 12 << 13, -1 };
	for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) {
		say("%#x:", odd[i]);
		TRY(syscall(SYS_ioprio_set, 1, 0, odd[i]));
		TRY(syscall(SYS_ioprio_get, 1, 0));
	}
	IN_CHILD("group", effective_priorities());
	TRY(syscall(SYS_ioprio_set, 1, 0, 0));
	TRY(syscall(SYS_ioprio_get, 1, 0));
}

static void processes(void)
{
	struct __user_cap_header_struct h = { 0, 0 };
	struct __user_cap_data_struct d[2];
	unsigned versions[] = { 0x19980330, 0x20071026, 0x20080522, 1 };
	for (int i = 0; i < 4; i++) {
		h.version = versions[i], h.pid = 0;
		memset(d, 7, sizeof d);
		errno = 0;
		long got = syscall(SYS_capget, &h, d);
		say("capget %#x: %ld %s, %#x, %x %x %x, %x %x %x", versions[i], got, got ? strerrorname_np(errno) : "", h.version,
			d[0].effective, d[0].permitted, d[0].inheritable, d[1].effective, d[1].permitted, d[1].inheritable);
		h.version = versions[i];
		TRY(syscall(SYS_capget, &h, 0));
	}
	h.version = 0x20080522;
	h.pid = -1;
	TRY(syscall(SYS_capget, &h, d));
	h.pid = 999999;
	TRY(syscall(SYS_capget, &h, d));
	h.pid = 1;
	TRY(syscall(SYS_capset, &h, d));
	TRY(syscall(SYS_capset, HOLE, d));
	h.pid = 0;
	TRY(syscall(SYS_capset, &h, HOLE));
	h.version = 3;
	TRY(syscall(SYS_capset, &h, d));
	HOLDS(h.version == 0x20080522);
	TRY(personality(0xffffffff));
	TRY(personality(ADDR_NO_RANDOMIZE));
	TRY(personality(PER_LINUX32));
	TRY(personality(PER_BSD));
	TRY(personality(0xffffffff));
	TRY(personality(0));
	TRY(syscall(SYS_arch_prctl, 0x1011, 0));
	TRY(syscall(SYS_arch_prctl, 0x1012, 1));
	TRY(syscall(SYS_arch_prctl, 0x9999, 0));
	TRY(syscall(SYS_arch_prctl, 0x1002, -1l));
	TRY(syscall(SYS_arch_prctl, 0x1003, HOLE));
	int tsc = 0;
	TRY(prctl(PR_GET_TSC, &tsc));
	say("tsc %d", tsc);
	TRY(prctl(PR_SET_TSC, 9));
	TRY(prctl(PR_SET_TSC, PR_TSC_ENABLE));
	TRY(prctl(PR_GET_KEEPCAPS));
	TRY(prctl(PR_SET_KEEPCAPS, 1));
	TRY(prctl(PR_GET_KEEPCAPS));
	TRY(prctl(PR_SET_KEEPCAPS, 2));
	TRY(prctl(PR_SET_KEEPCAPS, 0));
	TRY(prctl(PR_GET_SECCOMP));
	TRY(prctl(PR_GET_SECUREBITS));
	TRY(prctl(PR_GET_TIMING));
	TRY(prctl(PR_SET_TIMING, 0));
	TRY(prctl(PR_SET_TIMING, 1));
	TRY(prctl(PR_CAPBSET_READ, 0));
	TRY(prctl(PR_CAPBSET_READ, 99));
	TRY(prctl(PR_SET_PDEATHSIG, 99));
	TRY(prctl(PR_SET_DUMPABLE, 2));
	TRY(prctl(PR_SET_NO_NEW_PRIVS, 0));
	TRY(prctl(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0));
	TRY(prctl(PR_SET_THP_DISABLE, 1, 1, 0, 0));
	TRY(prctl(PR_GET_UNALIGN, &tsc));
	TRY(prctl(PR_GET_FPEMU, &tsc));
	TRY(prctl(PR_SET_VMA, 9, 0, 0, 0));
	TRY(prctl(9999));
	TRY(prctl(PR_SET_NAME, HOLE));
	TRY(syscall(SYS_syslog, 2, 0, 0));
	TRY(syscall(SYS_syslog, 3, 0, 8));
	TRY(syscall(SYS_syslog, 3, &tsc, -1));
	TRY(syscall(SYS_syslog, 3, &tsc, 0));
	TRY(syscall(SYS_syslog, 4, 0, 8));
	TRY(syscall(SYS_syslog, 3, HOLE, 8));
	TRY(syscall(SYS_syslog, -1, 0, 0));
	TRY(syscall(SYS_syslog, 99, 0, 0));
	TRY(syscall(SYS_syslog, 8, 0, 0));
	TRY(syscall(SYS_syslog, 8, 0, 9));
	TRY(syscall(SYS_wait4, -1, 0, 0x100, 0));
	TRY(syscall(SYS_wait4, 999999, 0, 0, 0));
	TRY(syscall(SYS_waitid, 9, 0, 0, WEXITED, 0));
	TRY(syscall(SYS_waitid, P_ALL, 0, 0, 0, 0));
	TRY(syscall(SYS_waitid, P_PID, 0, 0, WEXITED, 0));
	TRY(syscall(SYS_waitid, P_PGID, -1, 0, WEXITED, 0));
	TRY(getpgid(-1));
	TRY(getpgid(999999));
	TRY(getsid(-1));
	TRY(setpgid(-1, 0));
	TRY(setpgid(0, -1));
	struct rlimit limit = { 2, 1 };
	struct rusage usage;
	TRY(syscall(SYS_getrlimit, 99, &limit));
	TRY(syscall(SYS_setrlimit, 99, &limit));
	TRY(syscall(SYS_setrlimit, RLIMIT_NOFILE, &limit));
	TRY(syscall(SYS_prlimit64, 999999, RLIMIT_NOFILE, 0, &limit));
	TRY(syscall(SYS_prlimit64, 0, 99, 0, &limit));
	TRY(syscall(SYS_getrusage, 9, &usage));
	TRY(syscall(SYS_getrusage, -1, HOLE));
	gid_t groups[4] = { 1, 2, 3, 4 };
	TRY(syscall(SYS_setgroups, 65537, groups));
	TRY(syscall(SYS_setgroups, 3, HOLE));
	TRY(syscall(SYS_setgroups, 3, groups));
	TRY(syscall(SYS_getgroups, 0, 0));
	TRY(syscall(SYS_getgroups, 2, groups));
	TRY(syscall(SYS_getgroups, -1, groups));
	groups[0] = groups[2] = 9;
	TRY(syscall(SYS_getgroups, 4, groups));
	say("groups %d %d %d", groups[0], groups[1], groups[2]);
	IN_CHILD("heir", TRY(syscall(SYS_getgroups, 4, groups)));
	TRY(syscall(SYS_setgroups, 0, 0));
	TRY(syscall(SYS_getgroups, 0, 0));
	TRY(setfsuid(7));
	TRY(setfsuid(-1));
	TRY(setfsuid(0));
	TRY(setfsgid(8));
	TRY(setfsgid(-1));
	TRY(setfsgid(0));
	TRY(syscall(SYS_setuid, -1));
	TRY(syscall(SYS_setreuid, -1, -1));
	TRY(syscall(SYS_unshare, 0x1));
	TRY(syscall(SYS_setns, 999, 0));
	TRY(syscall(SYS_setns, 1, 0));
	TRY(syscall(SYS_sethostname, "x", -1));
	TRY(syscall(SYS_sethostname, "x", 65));
	TRY(syscall(SYS_sethostname, HOLE, 1));
	TRY(syscall(SYS_sysinfo, HOLE));
	TRY(syscall(SYS_uname, HOLE));
	TRY(syscall(SYS_times, HOLE));
	TRY(syscall(SYS_process_vm_readv, 999999, 0, 0, 0, 0, 0));
	TRY(syscall(SYS_process_vm_readv, getpid(), 0, 0, 0, 0, 1));
	TRY(syscall(SYS_clone, 0x10000, 0, 0, 0, 0));
	TRY(syscall(SYS_clone, 0x800, 0, 0, 0, 0));
	TRY(syscall(SYS_restart_syscall));
	TRY(syscall(SYS_set_tid_address, 0) == getpid());
}

static void waiting(void)
{
	int e = MUST(epoll_create1(0)), pipes[2], ev = MUST(eventfd(0, 0));
	struct epoll_event event = { EPOLLIN };
	MUST(pipe(pipes));
	int f = MUST(open("regular", O_CREAT | O_RDWR, 0600));
	TRY(epoll_ctl(e, EPOLL_CTL_ADD, e, &event));
	TRY(epoll_ctl(e, EPOLL_CTL_ADD, f, &event));
	TRY(epoll_ctl(e, 9, pipes[0], &event));
	TRY(epoll_ctl(e, EPOLL_CTL_ADD, pipes[0], (void *)HOLE));
	TRY(epoll_ctl(e, EPOLL_CTL_MOD, pipes[0], &event));
	TRY(epoll_ctl(e, EPOLL_CTL_DEL, pipes[0], 0));
	event.events = EPOLLIN | EPOLLEXCLUSIVE;
	TRY(epoll_ctl(e, EPOLL_CTL_ADD, pipes[0], &event));
	TRY(epoll_ctl(e, EPOLL_CTL_ADD, pipes[0], &event));
	TRY(epoll_ctl(e, EPOLL_CTL_MOD, pipes[0], &event));
	event.events = EPOLLIN;
	TRY(epoll_ctl(e, EPOLL_CTL_MOD, pipes[0], &event));
	event.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
	TRY(epoll_ctl(e, EPOLL_CTL_ADD, ev, &event));
	event.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP;
	TRY(epoll_ctl(e, EPOLL_CTL_ADD, ev, &event));
	event.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLET;
	TRY(epoll_ctl(e, EPOLL_CTL_ADD, ev, &event));
	event.events = EPOLLIN;
	TRY(epoll_wait(e, &event, 0, 0));
	TRY(epoll_wait(e, &event, -1, 0));
	TRY(epoll_wait(e, (void *)HOLE, 1, 0));
	int depth[8];
	depth[0] = pipes[0];
	for (int i = 1; i < 8; i++) {
		depth[i] = MUST(epoll_create1(0));
		errno = 0;
		int got = epoll_ctl(depth[i], EPOLL_CTL_ADD, depth[i - 1], &event);
		say("a set at depth %d: %d %s", i, got, got ? strerrorname_np(errno) : "");
	}
	TRY(epoll_wait(depth[5], &event, 1, 0));
	MUST(write(pipes[1], "x", 1));
	TRY(epoll_wait(depth[5], &event, 1, 0));
	TRY(epoll_ctl(depth[1], EPOLL_CTL_ADD, depth[3], &event));
	event.events = EPOLLIN | EPOLLEXCLUSIVE;
	int other = MUST(epoll_create1(0));
	TRY(epoll_ctl(other, EPOLL_CTL_ADD, e, &event));
	struct timespec bad = { 0, -1 };
	TRY(syscall(SYS_ppoll, 0, 0, &bad, 0, 8));
	TRY(syscall(SYS_pselect6, 0, 0, 0, 0, &bad, 0));
	TRY(syscall(SYS_select, -1, 0, 0, 0, 0));
	TRY(syscall(SYS_poll, HOLE, 1, 0));
	TRY(syscall(SYS_poll, 0, 9999999, 0));
	struct pollfd *fixed = MUST(mmap(0, PAGE, BOTH, ANON, -1, 0));
	TRY(poll(fixed, 1, 0));
	MUST(mprotect(fixed, PAGE, PROT_READ));
	TRY(poll(fixed, 1, 0));
	munmap(fixed, PAGE);
	uint64_t most = -1ul;
	TRY(write(ev, &most, 8));
	TRY(write(ev, &most, 4));
	TRY(read(ev, &most, 4));
}

#define COPY_WITHIN(limit, from, at, to, where, count) do { loff_t i_ = (at), o_ = (where); \
	TRY_WITHIN((limit), copy_file_range((from), &i_, (to), &o_, (count), 0)); \
	say("at %lld and %lld", (long long)i_, (long long)o_); } while (0)
#define COPY(...) COPY_WITHIN(RLIM_INFINITY, __VA_ARGS__)

/* What copies from file to file refuse, and where they end. */
static void copies(void)
{
	int f = MUST(open("copied", O_CREAT | O_RDWR | O_TRUNC, 0600)), g = MUST(open("copy", O_CREAT | O_RDWR | O_TRUNC, 0600));
	int more = MUST(open("copy", O_WRONLY | O_APPEND)), again = MUST(open("copied", O_RDWR));
	int m = MUST(memfd_create("m", 0)), d = MUST(open(".", O_RDONLY)), z = MUST(open("/dev/zero", O_RDWR));
	MUST(write(f, "0123456789", 10));
	COPY(f, 0, g, 5, 100);
	COPY(f, 10, g, 0, 5);
	COPY(f, 11, g, 0, 5);
	/* In one file. */
	COPY(f, 0, f, 0, 10);
	COPY(f, 0, f, 9, 10);
	COPY(f, 4, again, 0, 5);
	COPY(f, 5, again, 0, 5);
	COPY(f, 0, again, 10, 1000);
	COPY(f, 0, f, 5, 0);
	say("%ld bytes", (long)lseek(f, 0, SEEK_END));
	/* Offsets. */
	COPY(f, -1, g, 0, 5);
	COPY(f, -1, g, 0, 0);
	COPY(f, 0, g, -7, 5);
	COPY(f, 0, g, 0, -1);
	COPY(f, 1, g, 0, -1);
	COPY(f, 0, g, INT64_MAX, 1);
	COPY(f, INT64_MAX, g, 0, 1);
	COPY(f, INT64_MAX, g, INT64_MAX, 0);
	/* Kinds of files. */
	COPY(f, 0, more, 0, 5);
	COPY(g, 0, d, 0, 5);
	COPY(d, 0, z, 0, 5);
	COPY(z, 0, g, 0, 5);
	COPY(more, 0, g, 0, 5);
	COPY(f, 0, m, 0, 5);
	COPY(m, 0, f, 0, 0);
	TRY(copy_file_range(d, 0, g, 0, 1, 1));
	TRY(copy_file_range(d, 0, g, (void *)HOLE, 1, 1));
	TRY(copy_file_range(more, (void *)HOLE, g, 0, 1, 0));
	/* The limit of a file's size. */
	signal(SIGXFSZ, SIG_IGN);
	MUST(ftruncate(g, 0));
	COPY_WITHIN(8, f, 0, g, 4, 10);
	COPY_WITHIN(8, f, 0, g, 8, 10);
	COPY_WITHIN(8, f, 100, g, 8, 10);
	COPY_WITHIN(8, f, 100, g, 7, 10);
	signal(SIGXFSZ, SIG_DFL);
	say("%ld bytes", (long)lseek(g, 0, SEEK_END));
	close(f), close(g), close(more), close(again), close(m), close(d), close(z);
	unlink("copied"), unlink("copy");
}

/* Descriptors beyond the table are not looked at, and their bits stay. The table of a new process has 64 places. */
static void large_sets(void)
{
	fd_set r;
	struct timeval none = { 0, 0 };
#define SELECT(n, ...) do { const int all_[] = { __VA_ARGS__ }; FD_ZERO(&r); \
	for (unsigned i_ = 0; i_ < sizeof all_ / sizeof *all_; i_++) FD_SET(all_[i_], &r); \
	TRY(select(n, &r, 0, 0, &none)); \
	for (unsigned i_ = 0; i_ < sizeof all_ / sizeof *all_; i_++) say("%d: %d", all_[i_], FD_ISSET(all_[i_], &r) != 0); } while (0)
	int e = MUST(eventfd(1, 0));
	MUST(dup2(e, 20));
	close(e);
	SELECT(1024, 20, 100, 900);
	SELECT(1024, 20, 50);
	SELECT(21, 20, 50, 100);
	SELECT(20, 20, 50, 100);
	SELECT(0, 20, 50, 100);
	MUST(dup2(20, 100));
	SELECT(1024, 20, 100, 900);
	SELECT(1024, 20, 110);
	SELECT(1024, 20, 200);
	SELECT(101, 20, 110);
	close(100);
	SELECT(1024, 100);
	TRY(select(1024, (fd_set *)HOLE, 0, 0, &none));
}

/* Devices that have no offset. */
static void places(void)
{
	static const char *const names[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/urandom" };
	for (int i = 0; i < 4; i++) {
		int fd = MUST(open(names[i], O_RDWR));
		say("%s", names[i]);
		TRY(lseek(fd, 5, SEEK_SET)); TRY(lseek(fd, -77, SEEK_CUR)); TRY(lseek(fd, INT64_MIN, SEEK_CUR)); TRY(lseek(fd, -1, SEEK_END));
		TRY(lseek(fd, 9, SEEK_DATA)); TRY(lseek(fd, 9, SEEK_HOLE)); TRY(lseek(fd, 1, 5));
		close(fd);
	}
	TRY(syscall(SYS_reboot, 1, 2, 0, 0));
	TRY(syscall(SYS_reboot, 0xfee1dead, 2, 0, 0));
}

static void on_timer(int signal)
{
}

/* A signal ends an allocation that would take all memory. What it has taken is free again. */
static void interrupted(void)
{
	int f = MUST(memfd_create("large", 0));
	struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, never = { { 0, 0 }, { 0, 0 } };
	struct stat st;
	signal(SIGALRM, on_timer);
	MUST(setitimer(ITIMER_REAL, &often, 0));
	int r = fallocate(f, 0, 0, 1l << 45), error = errno;
	MUST(setitimer(ITIMER_REAL, &never, 0));
	say("fallocate: %d %s", r, strerrorname_np(error));
	MUST(fstat(f, &st));
	say("%ld bytes, %ld blocks", (long)st.st_size, (long)st.st_blocks);
	MUST(close(f));
}

int main(void)
{
	char *page = MUST(mmap(0, PAGE, BOTH, ANON, -1, 0));
	page[0] = 0;
	say("== futexes"); futexes(page);
	say("== barriers"); barriers();
	say("== memory"); memory(page);
	say("== path descriptors"); path_descriptors();
	say("== descriptors"); descriptors();
	say("== times"); times();
	say("== signals"); signals();
	say("== scheduling"); scheduling();
	say("== processes"); processes();
	say("== waiting"); waiting();
	say("== copies"); copies();
	say("== large sets"); IN_CHILD("the child", close_range(50, ~0u, 0); IN_CHILD("its child", large_sets()));
	say("== devices without places"); places();
	say("== interrupted"); interrupted();
	return 0;
}
