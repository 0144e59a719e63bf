/* The flags that open files have, and preadv2 and pwritev2: what each flag does to each kind of file, and where they read and write. */
#include "say.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

#ifndef RWF_APPEND
#define RWF_APPEND 16
#endif

static char buffer[64];
static struct iovec io = { buffer, 1 }, none = { buffer, 0 };

static long in(int f, long at, int flags) { return syscall(SYS_preadv2, f, &io, 1, at, 0, flags); }
static long out(int f, long at, int flags) { return syscall(SYS_pwritev2, f, &io, 1, at, 0, flags); }

static const int flags[] = { 0, RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_APPEND, RWF_APPEND | RWF_NOWAIT, 0x1f, 0x20, 0x40, -1 };

/* What a kind of file says to each flag; what it reads by others is checked below. */
static void each_flag(const char *name, int reads, int writes)
{
	for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
		errno = 0;
		long r = reads < 0 ? 0 : in(reads, -1, flags[i]);
		int e = errno;
		errno = 0;
		long w = writes < 0 ? 0 : out(writes, -1, flags[i]);
		say("%s, flags %#x: reads %ld %s, writes %ld %s", name, flags[i], r, r < 0 ? strerrorname_np(e) : "", w, w < 0 ? strerrorname_np(errno) : "");
	}
}

static void positions(void)
{
	int f = MUST(open("file", O_RDWR | O_CREAT | O_TRUNC, 0644));
	MUST(write(f, "0123456789", 10));
	MUST(lseek(f, 3, SEEK_SET));
	TRY(in(f, -1, 0));
	say("read '%c', then at %ld", buffer[0], (long)lseek(f, 0, SEEK_CUR));
	TRY(in(f, -1, RWF_HIPRI));
	say("read '%c', then at %ld", buffer[0], (long)lseek(f, 0, SEEK_CUR));
	TRY(in(f, 7, 0));
	say("read '%c', then at %ld", buffer[0], (long)lseek(f, 0, SEEK_CUR));
	TRY(in(f, 10, 0));
	TRY(in(f, -2, 0));
	TRY(in(f, (long)(1ull << 63), 0));
	TRY(preadv2(f, &io, 1, -1, 0));
	TRY(syscall(SYS_preadv2, f, &io, 1, 1, 77, 0));
	say("read '%c', then at %ld", buffer[0], (long)lseek(f, 0, SEEK_CUR));
	TRY(syscall(SYS_preadv2, f, &none, 1, -1L, 0, 0x40));
	TRY(syscall(SYS_preadv2, f, &none, 1, -1L, 0, RWF_NOWAIT));
	TRY(syscall(SYS_preadv2, f, &io, 0, -1L, 0, 0x40));
	TRY(syscall(SYS_preadv2, f, 0, 1, -1L, 0, 0x40));
	TRY(syscall(SYS_preadv2, f, &io, -1, -1L, 0, 0x40));
	TRY(syscall(SYS_preadv2, -1, &io, 1, -1L, 0, 0x40));
	TRY(syscall(SYS_preadv2, -1, &io, 1, -2L, 0, 0x40));
	TRY(syscall(SYS_pwritev2, f, &none, 1, -1L, 0, 0x40));
	buffer[0] = 'a';
	TRY(out(f, 2, RWF_APPEND));
	say("then at %ld, of %ld", (long)lseek(f, 0, SEEK_CUR), (long)lseek(f, 0, SEEK_END));
	MUST(lseek(f, 4, SEEK_SET));
	buffer[0] = 'b';
	TRY(out(f, -1, RWF_APPEND));
	say("then at %ld, of %ld", (long)lseek(f, 0, SEEK_CUR), (long)lseek(f, 0, SEEK_END));
	MUST(lseek(f, 4, SEEK_SET));
	buffer[0] = 'c';
	TRY(out(f, -1, RWF_SYNC));
	TRY(out(f, 6, RWF_DSYNC));
	TRY(fcntl(f, F_GETFL) & O_APPEND);
	char all[32] = { 0 };
	TRY(pread(f, all, sizeof all, 0));
	say("'%s'", all);
	signal(SIGXFSZ, SIG_IGN);
	TRY_WITHIN(12, out(f, 2, RWF_APPEND));
	int r = MUST(open("file", O_RDONLY)), w = MUST(open("file", O_WRONLY));
	TRY(out(r, -1, RWF_APPEND));
	TRY(out(r, -1, 0x40));
	TRY(in(w, 0, 0x40));
	close(f), close(r), close(w);
}

/* What F_GETFL and fdinfo show of a new descriptor. */
static void shown(const char *what, int fd)
{
	char path[64], line[64] = "";
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof line, file) && strncmp(line, "flags:", 6))
		;
	line[strcspn(line, "\n")] = 0;
	say("%s: %#x, %s", what, fcntl(fd, F_GETFL), line);
	if (file)
		fclose(file);
	close(fd);
}

static void open_files(void)
{
	int p[2];
	sigset_t none_of_them;
	sigemptyset(&none_of_them);
	shown("created", MUST(open("shown", O_RDWR | O_CREAT | O_EXCL | O_APPEND, 0600)));
	shown("for reading", MUST(open("shown", O_RDONLY | O_CLOEXEC)));
	shown("cut", MUST(open("shown", O_WRONLY | O_TRUNC | O_NOFOLLOW)));
	shown("a place", MUST(open("shown", O_PATH | O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC)));
	shown("a directory", MUST(open(".", O_DIRECTORY)));
	shown("nameless", MUST(open(".", O_TMPFILE | O_RDWR, 0600)));
	shown("a device", MUST(open("/dev/null", O_WRONLY | O_NONBLOCK)));
	shown("/proc", MUST(open("/proc/self/stat", O_RDONLY)));
	shown("memfd", MUST(memfd_create("m", MFD_CLOEXEC)));
	shown("eventfd", MUST(eventfd(0, EFD_NONBLOCK)));
	shown("epoll", MUST(epoll_create1(0)));
	shown("timerfd", MUST(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)));
	shown("signalfd", MUST(signalfd(-1, &none_of_them, SFD_NONBLOCK)));
	shown("socket", MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)));
	MUST(pipe2(p, O_NONBLOCK));
	shown("pipe", p[0]);
	shown("its other end", p[1]);
	MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, p));
	snprintf(buffer, sizeof buffer, "/proc/self/fd/%d", MUST(open("shown", O_RDWR)));
	shown("once more", MUST(open(buffer, O_RDONLY)));
	unlink("shown");
}

int main(void)
{
	say("== open files"); open_files();
	say("== positions"); positions();
	say("== kinds of files");
	int f = MUST(open("file", O_RDWR | O_CREAT | O_TRUNC, 0644));
	MUST(ftruncate(f, 100));
	each_flag("file", f, f);
	int m = MUST(memfd_create("m", 0));
	MUST(ftruncate(m, 100));
	each_flag("memfd", m, m);
	const char *devices[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/urandom" };
	for (int i = 0; i < 4; i++) {
		int d = MUST(open(devices[i], O_RDWR));
		/* Linux's full has no call to write vectors: that only matters with flags. */
		each_flag(devices[i], d, i == 2 ? -1 : d);
		TRY(in(d, 0, RWF_NOWAIT));
	}
	int p[2], s[2];
	MUST(pipe(p));
	MUST(write(p[1], "0123456789abcdef", 16));
	each_flag("pipe", p[0], p[1]);
	TRY(in(p[0], 0, 0));
	TRY(in(p[0], 0, 0x40));
	TRY(out(p[1], 0, RWF_APPEND));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	MUST(write(s[1], "0123456789abcdef", 16));
	each_flag("socket", s[0], s[1]);
	/* Nothing to read, no room to write, and yet no task waits. */
	int e = MUST(eventfd(0, 0));
	uint64_t one = 1;
	struct iovec word = { &one, 8 };
	TRY(syscall(SYS_preadv2, e, &word, 1, -1L, 0, RWF_NOWAIT));
	TRY(syscall(SYS_pwritev2, e, &word, 1, -1L, 0, RWF_NOWAIT));
	TRY(write(e, &one, 8));
	TRY(syscall(SYS_preadv2, e, &word, 1, -1L, 0, RWF_NOWAIT));
	int d = MUST(open(".", O_RDONLY | O_DIRECTORY));
	TRY(in(d, -1, 0));
	TRY(in(d, -1, 0x40));
	unlink("file");
	return 0;
}
