/* Asynchronous input and output as io_submit takes it: results of calls, and the events of requests. */
#include "say.h"
#include <linux/aio_abi.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

#define setup(n, c) syscall(SYS_io_setup, n, c)
#define destroy(c) syscall(SYS_io_destroy, c)
#define submit(c, n, p) syscall(SYS_io_submit, c, (long)(n), p)
#define cancel(c, b, e) syscall(SYS_io_cancel, c, b, e)
#define events(c, least, most, e, t) syscall(SYS_io_getevents, c, (long)(least), (long)(most), e, t)
#define pevents(c, least, most, e, t, s) syscall(SYS_io_pgetevents, c, (long)(least), (long)(most), e, t, s)

static aio_context_t ctx;
static struct iocb blocks[8], *list[8];
static struct timespec none = {0, 0}, soon = {0, 20000000}, late = {600, 0};

static struct iocb *block(int n, int op, int fd, const void *buffer, unsigned long count, long long offset)
{
	struct iocb *b = &blocks[n];
	memset(b, 0, sizeof *b);
	b->aio_data = 100 + n;
	b->aio_lio_opcode = op;
	b->aio_fildes = fd;
	b->aio_buf = (unsigned long)buffer;
	b->aio_nbytes = count;
	b->aio_offset = offset;
	list[n] = b;
	return b;
}

static void show(int least, struct timespec *wait)
{
	struct io_event got[8];
	errno = 0;
	long n = events(ctx, least, 8, got, wait);
	say("%ld events%s%s", n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
	for (int i = 0; i < n; i++)
		say("  data %lld of block %ld: %lld %lld", (long long)got[i].data,
		    (long)((struct iocb *)(unsigned long)got[i].obj - blocks), (long long)got[i].res & ~(got[i].res > 0 ? (long long)POLLRDNORM : 0),
		    (long long)got[i].res2);
}

static void one(const char *what)
{
	errno = 0;
	long r = submit(ctx, 1, list);
	say("%s: %ld%s%s", what, r, r < 0 ? " " : "", r < 0 ? strerrorname_np(errno) : "");
	if (r == 1)
		show(1, &late);
}

static void files(void)
{
	char text[16] = "0123456789abcdef", back[16] = "";
	struct iovec two[2] = {{back, 4}, {back + 8, 4}};
	int f = open("/tmp/aio", O_RDWR | O_CREAT | O_TRUNC, 0600), r = open("/tmp/aio", O_RDONLY);
	int w = open("/tmp/aio", O_WRONLY), d = open("/tmp", O_RDONLY), p = open("/tmp/aio", O_PATH);
	block(0, IOCB_CMD_PWRITE, f, text, 16, 0);
	block(1, IOCB_CMD_PREAD, f, back, 16, 4);
	block(2, IOCB_CMD_PREADV, f, two, 2, 2);
	block(3, IOCB_CMD_FSYNC, f, 0, 0, 0);
	block(4, IOCB_CMD_FDSYNC, f, 0, 0, 0);
	TRY(submit(ctx, 3, list));
	show(3, &late);
	say("%.4s %.4s, the offset is %ld", back, back + 8, (long)lseek(f, 0, SEEK_CUR));
	TRY(submit(ctx, 1, list + 3));
	show(1, &late);
	TRY(submit(ctx, 1, list + 4));
	show(1, &late);
	block(0, IOCB_CMD_PREAD, r, back, 16, 16), one("behind the end");
	block(0, IOCB_CMD_PREAD, r, back, 0, 0), one("no bytes");
	block(0, IOCB_CMD_PREAD, r, (void *)1, 16, 0), one("a bad buffer");
	block(0, IOCB_CMD_PREAD, r, (void *)-4096L, 16, 0), one("a buffer that cannot be");
	block(0, IOCB_CMD_PREAD, w, back, 16, 0), one("reading what is open for writing");
	block(0, IOCB_CMD_PWRITE, r, back, 16, 0), one("writing what is open for reading");
	block(0, IOCB_CMD_PREAD, p, back, 16, 0), one("a place");
	block(0, IOCB_CMD_PREAD, 999, back, 16, 0), one("no descriptor");
	block(0, IOCB_CMD_PREAD, d, back, 16, 0), one("a directory");
	block(0, IOCB_CMD_PREAD, r, back, 16, -1), one("a negative offset");
	block(0, IOCB_CMD_PREAD, r, back, 16, 0x7fffffffffffffff), one("an offset that overflows");
	block(0, IOCB_CMD_PREAD, r, back, -1UL, 0), one("a negative count");
	block(0, IOCB_CMD_PREADV, r, two, 2000, 0), one("too many pieces");
	block(0, 99, r, back, 16, 0), one("no operation");
	block(0, IOCB_CMD_NOOP, r, back, 16, 0), one("the operation that does nothing");
	block(0, IOCB_CMD_FSYNC, r, back, 16, 0), one("a sync with a buffer");
	block(0, IOCB_CMD_PREAD, r, back, 16, 0)->aio_reserved2 = 1, one("a reserved word");
	block(0, IOCB_CMD_PREAD, r, back, 16, 0)->aio_rw_flags = 1 << 20, one("an unknown flag");
	block(0, IOCB_CMD_PWRITE, f, "zz", 2, 0)->aio_rw_flags = 0x10, one("appending by a flag");
	block(0, IOCB_CMD_PREAD, r, back, 16, 0)->aio_key = 7, one("a key");
	say("the key is %u now", blocks[0].aio_key);
	block(0, IOCB_CMD_PREAD, r, back, 4, 0);
	block(1, IOCB_CMD_PREAD, 999, back, 4, 0);
	TRY(submit(ctx, 2, list));
	show(1, &late);
	list[0] = (void *)8;
	TRY(submit(ctx, 1, list));
	TRY(submit(ctx, 1, (void *)8));
	TRY(submit(ctx, 0, list));
	TRY(submit(ctx, -1, list));
	TRY(submit(0, 1, list));
	close(f), close(r), close(w), close(d), close(p);
}

static void pipes(void)
{
	char back[16] = "";
	int p[2], e = eventfd(0, EFD_NONBLOCK);
	uint64_t count;
	DO(pipe2(p, O_NONBLOCK));
	block(0, IOCB_CMD_PREAD, p[0], back, 16, 5), one("an empty pipe");
	block(0, IOCB_CMD_PWRITE, p[1], "pipe", 4, -9), one("a pipe has no offsets");
	struct iocb *b = block(0, IOCB_CMD_PREAD, p[0], back, 16, 0);
	b->aio_flags = IOCB_FLAG_RESFD, b->aio_resfd = e, one("with an eventfd");
	TRY(read(e, &count, 8));
	say("%.4s, count %d", back, (int)count);
	b->aio_resfd = p[0], one("an eventfd that is none");
	b->aio_resfd = 999, one("no eventfd");
	block(0, IOCB_CMD_FSYNC, p[0], 0, 0, 0), one("a pipe cannot be synced");
	signal(SIGPIPE, SIG_IGN);
	block(0, IOCB_CMD_POLL, p[1], (void *)POLLOUT, 0, 0), one("a pipe with room");
	block(0, IOCB_CMD_POLL, p[0], (void *)POLLIN, 0, 0)->aio_flags = IOCB_FLAG_RESFD;
	blocks[0].aio_resfd = e;
	TRY(submit(ctx, 1, list));
	show(0, &none);
	show(1, &soon);
	TRY(read(e, &count, 8));
	TRY(write(p[1], "x", 1));
	show(1, &late);
	struct pollfd told = {e, POLLIN, 0};
	TRY(poll(&told, 1, 600000));
	TRY(read(e, &count, 8));
	TRY(read(p[0], back, 16));
	block(0, IOCB_CMD_POLL, p[0], (void *)POLLIN, 0, 0);
	block(1, IOCB_CMD_POLL, p[0], (void *)POLLIN, 0, 0);
	TRY(submit(ctx, 2, list));
	TRY(cancel(ctx, &blocks[0], 0));
	show(1, &late);
	TRY(cancel(ctx, &blocks[0], 0));
	TRY(cancel(ctx, (void *)8, 0));
	TRY(cancel(0, &blocks[1], 0));
	blocks[1].aio_key = 5;
	TRY(cancel(ctx, &blocks[1], 0));
	TRY(close(p[1]));
	show(1, &late);
	block(0, IOCB_CMD_POLL, p[0], (void *)POLLIN, 1, 0), one("a poll with a count");
	block(0, IOCB_CMD_POLL, p[0], (void *)0x10000, 0, 0), one("a poll for what there is not");
	int f = open("/tmp/aio", O_RDONLY), t = timerfd_create(CLOCK_MONOTONIC, 0);
	block(0, IOCB_CMD_POLL, f, (void *)POLLIN, 0, 0), one("a file is always ready");
	struct itimerspec when = {.it_value = soon};
	block(0, IOCB_CMD_POLL, t, (void *)POLLIN, 0, 0);
	TRY(submit(ctx, 1, list));
	show(0, &none);
	TRY(timerfd_settime(t, 0, &when, 0));
	show(1, &late);
	close(p[0]), close(e), close(f), close(t);
}

static void overflowing(void)
{
	int e = eventfd(0, EFD_NONBLOCK), f = open("/tmp/aio", O_RDWR);
	uint64_t count = UINT64_MAX - 1;
	struct pollfd told = {e, POLLIN | POLLOUT, 0};
	char c;
	TRY(write(e, &count, 8));
	for (int i = 0; i < 2; i++) {
		block(0, IOCB_CMD_PREAD, f, &c, 1, 0)->aio_flags = IOCB_FLAG_RESFD;
		blocks[0].aio_resfd = e;
		one("a full eventfd");
		TRY(poll(&told, 1, 0));
		say("ready %#x", told.revents);
	}
	TRY(read(e, &count, 8));
	say("%d", count == UINT64_MAX);
	close(e), close(f);
}

static int number(const char *path)
{
	char text[32] = "";
	int f = open(path, O_RDONLY);
	read(f, text, sizeof text - 1);
	close(f);
	return atoi(text);
}

static void contexts(void)
{
	struct io_event got[2];
	aio_context_t other = 0;
	sigset_t set;
	sigemptyset(&set);
	struct { const void *set; size_t size; } mask = {&set, 8}, bad = {&set, 3};
	TRY(setup(8, (void *)8));
	TRY(setup(0, &other));
	TRY(setup(0x10000000, &other));
	TRY(setup(200000, &other));
	TRY(setup(-1, &other));
	TRY(setup(8, &ctx));
	TRY(setup(8, &ctx));
	say("%d requests more", number("/proc/sys/fs/aio-nr"));
	TRY(setup(100, &other));
	say("%d requests more", number("/proc/sys/fs/aio-nr"));
	TRY(destroy(other));
	TRY(destroy(other));
	say("%d requests more, %d at most", number("/proc/sys/fs/aio-nr"), number("/proc/sys/fs/aio-max-nr"));
	TRY(events(ctx, 2, 1, got, &none));
	TRY(events(ctx, -1, 1, got, &none));
	TRY(events(ctx, 0, -1, got, &none));
	TRY(events(0, 0, 1, got, &none));
	TRY(events(ctx, 1, 1, got, (void *)8));
	TRY(events(ctx, 0, 1, got, NULL));
	TRY(pevents(ctx, 1, 1, got, &none, &mask));
	TRY(pevents(ctx, 1, 1, got, &none, &bad));
	TRY(pevents(ctx, 1, 1, got, &none, (void *)8));
	char c;
	int f = open("/tmp/aio", O_RDONLY);
	block(0, IOCB_CMD_PREAD, f, &c, 1, 0);
	TRY(submit(ctx, 1, list));
	TRY(events(ctx, 1, 1, (void *)8, &none));
	show(1, &late);
	close(f);
	pid_t child = fork();
	if (!child) {
		TRY(events(ctx, 0, 1, got, &none));
		TRY(destroy(ctx));
		_exit(0);
	}
	waitpid(child, NULL, 0);
	show(0, &none);
}

static void nothing(int signal)
{
	(void)signal;
}

static void interrupted(void)
{
	struct sigaction act = {.sa_handler = nothing};
	struct itimerval soon = {.it_value = {0, 20000}, .it_interval = {0, 20000}}, never = {0};
	struct io_event got[2];
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	TRY(events(ctx, 1, 1, got, NULL));
	TRY(pevents(ctx, 1, 1, got, NULL, NULL));
	setitimer(ITIMER_REAL, &never, NULL);
}

int main(void)
{
	int f = open("/tmp/aio", O_RDWR | O_CREAT | O_TRUNC, 0600);
	write(f, "a", 1);
	close(f);
	contexts();
	files();
	pipes();
	overflowing();
	interrupted();
	int p[2];
	pipe(p);
	block(0, IOCB_CMD_POLL, p[0], (void *)POLLIN, 0, 0);
	TRY(submit(ctx, 1, list));
	TRY(destroy(ctx));
	TRY(submit(ctx, 1, list));
	say("%d requests more", number("/proc/sys/fs/aio-nr"));
	unlink("/tmp/aio");
	return 0;
}
