/* What splice, tee and vmsplice answer, and where the bytes are afterwards. */
#include "say.h"
#include "blocked.h"
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define NB SPLICE_F_NONBLOCK

static char big[1 << 20] __attribute__((aligned(PAGE)));

static void make(int p[2], int flags) { MUST(pipe2(p, flags)); }
static void end(int p[2]) { close(p[0]); close(p[1]); }

static void fill(char *b, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		b[i] = (seed = seed * 1103515245 + 12345) >> 16;
}

static int file_of(const char *path, size_t n, unsigned seed)
{
	static char b[1 << 20];
	fill(b, n, seed);
	int f = MUST(open(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
	MUST(write(f, b, n));
	lseek(f, 0, SEEK_SET);
	return f;
}

static void say_left(const char *what, int p)
{
	int n = -1;
	ioctl(p, FIONREAD, &n);
	say("%s: %d bytes", what, n);
}

/* Reads all that is in a pipe without an end. */
static void say_content(const char *what, int p)
{
	size_t n = 0;
	int left;
	while (ioctl(p, FIONREAD, &left) == 0 && left > 0)
		n += MUST(read(p, big + n, sizeof big - n));
	say("%s: %zu bytes, %016lx", what, n, (long)hash(big, n));
}

static void errors(void)
{
	int p[2], q[2];
	make(p, O_NONBLOCK);
	make(q, 0);
	int f = file_of("/tmp/splice_a", 10000, 1), a = MUST(open("/tmp/splice_a", O_WRONLY | O_APPEND));
	int r = MUST(open("/tmp/splice_a", O_RDONLY)), w = MUST(open("/tmp/splice_a", O_WRONLY));
	int path = MUST(open("/tmp/splice_a", O_PATH)), dir = MUST(open("/tmp", O_RDONLY));
	int event = eventfd(1, EFD_NONBLOCK), set = epoll_create1(0);
	loff_t at = 0, bad = -1;
	TRY(splice(f, 0, p[1], 0, 0, 0xff));
	TRY(splice(999, 0, 998, 0, 0, 0));
	TRY(splice(f, 0, p[1], 0, 10, 0x10));
	TRY(splice(999, 0, p[1], 0, 10, 0));
	TRY(splice(f, 0, 999, 0, 10, 0));
	TRY(splice(path, 0, p[1], 0, 10, 0));
	TRY(splice(f, 0, r, 0, 10, 0));
	TRY(splice(f, 0, w, 0, 10, 0));
	TRY(splice(w, 0, p[1], 0, 10, 0));
	TRY(splice(p[0], 0, r, 0, 10, 0));
	TRY(splice(p[1], 0, q[1], 0, 10, 0));
	TRY(splice(p[0], 0, q[0], 0, 10, 0));
	TRY(splice(p[0], 0, p[1], 0, 10, 0));
	TRY(splice(f, 0, p[1], &at, 10, 0));
	TRY(splice(p[0], &at, f, 0, 10, 0));
	TRY(splice(p[0], &at, q[1], &at, 10, 0));
	TRY(splice(f, (void *)8, p[1], 0, 10, 0));
	TRY(splice(p[0], 0, f, (void *)8, 10, 0));
	TRY(splice(f, &bad, p[1], 0, 10, 0));
	TRY(splice(p[0], 0, f, &bad, 10, 0));
	TRY(splice(p[0], 0, a, 0, 10, 0));
	TRY(splice(dir, 0, p[1], 0, 10, 0));
	TRY(splice(event, 0, p[1], 0, 10, 0));
	TRY(splice(set, 0, p[1], 0, 10, 0));
	MUST(write(p[1], "x", 1));
	TRY(splice(p[0], 0, event, 0, 10, 0));
	say_left("still there", p[0]);
	say_content("still there", p[0]);
	TRY(splice(f, 0, p[1], 0, -1ul, 0));
	TRY(splice(p[0], 0, f, 0, 10, 0));
	TRY(splice(p[0], 0, f, 0, 10, NB));
	TRY(splice(q[0], 0, f, 0, 10, NB));
	TRY(splice(q[0], 0, p[1], 0, 10, 0));
	TRY(splice(p[0], 0, q[1], 0, 10, NB));
	int s[2];
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
	TRY(splice(s[0], &at, p[1], 0, 10, 0));
	TRY(splice(p[0], 0, s[0], &at, 10, 0));
	TRY(splice(s[0], 0, p[1], 0, 10, 0));
	end(s);
	TRY(tee(p[0], q[1], 0, 0xff));
	TRY(tee(p[0], q[1], 0, 0));
	TRY(tee(f, q[1], 10, 0));
	TRY(tee(p[0], f, 10, 0));
	TRY(tee(p[0], p[1], 10, 0));
	TRY(tee(p[1], q[1], 10, 0));
	TRY(tee(p[0], 999, 10, 0));
	TRY(tee(p[0], q[1], 10, 0));
	struct iovec v = { big, 10 }, huge[2] = { { big, -1ul / 2 + 1 }, { big, 1 } }, bad_v = { (void *)8, 10 };
	TRY(vmsplice(f, &v, 1, 0));
	TRY(vmsplice(999, &v, 1, 0));
	TRY(vmsplice(path, &v, 1, 0));
	TRY(vmsplice(q[1], &v, 1, 0x20));
	TRY(vmsplice(q[1], &v, 0, 0));
	TRY(vmsplice(f, &v, 0, 0));
	TRY(vmsplice(q[1], &v, 1025, 0));
	TRY(vmsplice(q[1], huge, 2, 0));
	TRY(vmsplice(q[1], (void *)8, 1, 0));
	TRY(vmsplice(q[1], &bad_v, 1, 0));
	TRY(vmsplice(q[0], &v, 1, NB));
	signal(SIGPIPE, SIG_IGN);
	close(q[0]);
	TRY(splice(f, 0, q[1], 0, 10, 0));
	TRY(vmsplice(q[1], &v, 1, 0));
	MUST(write(p[1], "x", 1));
	TRY(splice(p[0], 0, q[1], 0, 10, 0));
	TRY(tee(p[0], q[1], 10, 0));
	say_left("still there", p[0]);
	signal(SIGPIPE, SIG_DFL);
	IN_CHILD("the writer", splice(f, 0, q[1], 0, 10, 0));
	IN_CHILD("the carrier", splice(p[0], 0, q[1], 0, 10, 0));
	close(q[1]);
	end(p);
	/* At the end. */
	make(p, 0);
	make(q, 0);
	close(p[1]);
	TRY(splice(p[0], 0, f, 0, 10, 0));
	TRY(splice(p[0], 0, q[1], 0, 10, 0));
	TRY(tee(p[0], q[1], 10, 0));
	TRY(vmsplice(p[0], &v, 1, 0));
	TRY(splice(f, &(loff_t){ 10000 }, q[1], 0, 10, 0));
	TRY(splice(f, &(loff_t){ 20000 }, q[1], 0, 10, 0));
	close(p[0]);
	end(q);
	close(f); close(a); close(r); close(w); close(path); close(dir); close(event); close(set);
}

static void between_pipes(void)
{
	int p[2], q[2];
	make(p, O_NONBLOCK);
	make(q, O_NONBLOCK);
	fill(big, 65536, 2);
	MUST(write(p[1], big, 65536));
	TRY(splice(p[0], 0, q[1], 0, 1 << 20, 0));
	say_left("from", p[0]);
	TRY(splice(p[0], 0, q[1], 0, 10, 0));
	MUST(write(p[1], big, 8192));
	TRY(splice(p[0], 0, q[1], 0, 10, 0));
	TRY(tee(p[0], q[1], 10, 0));
	say_content("carried", q[0]);
	/* Pieces at odd places. */
	TRY(read(p[0], big, 1000));
	TRY(splice(p[0], 0, q[1], 0, 100, 0));
	TRY(splice(p[0], 0, q[1], 0, 5000, 0));
	say_content("pieces", q[0]);
	TRY(tee(p[0], q[1], 10000, 0));
	say_left("after tee", p[0]);
	say_content("copy", q[0]);
	say_content("original", p[0]);
	/* A page that two pipes would share stays what it was. */
	memset(big, 'a', PAGE);
	MUST(write(p[1], big, 100));
	TRY(tee(p[0], q[1], 100, 0));
	MUST(write(p[1], "bbbb", 4));
	MUST(write(q[1], "cccc", 4));
	say_content("one", p[0]);
	say_content("other", q[0]);
	/* To and fro, few times: on Linux each piece takes a place of the pipe's sixteen. */
	fill(big, 40000, 3);
	MUST(write(p[1], big, 40000));
	for (int i = 0; i < 5; i++) {
		TRY(splice(p[0], 0, q[1], 0, 1 + i * 997, 0));
		TRY(splice(q[0], 0, p[1], 0, 1 + i * 997, 0));
	}
	say_left("still", p[0]);
	say_content("turned", p[0]);
	end(p);
	end(q);
}

static void files(void)
{
	int p[2], f = file_of("/tmp/splice_a", 200000, 4), g = file_of("/tmp/splice_b", 0, 0);
	make(p, O_NONBLOCK);
	TRY(splice(f, 0, p[1], 0, 4096, 0));
	TRY(lseek(f, 0, SEEK_CUR));
	TRY(splice(p[0], 0, g, 0, 100, 0));
	TRY(lseek(g, 0, SEEK_CUR));
	loff_t from = 8192, to = 50000;
	TRY(splice(f, &from, p[1], 0, 8192, SPLICE_F_MOVE | SPLICE_F_MORE));
	say("from %ld", (long)from);
	TRY(lseek(f, 0, SEEK_CUR));
	TRY(splice(p[0], 0, g, &to, 1 << 20, SPLICE_F_MOVE));
	say("to %ld", (long)to);
	TRY(lseek(g, 0, SEEK_CUR));
	struct stat st;
	MUST(fstat(g, &st));
	say("size %ld", (long)st.st_size);
	TRY(pread(g, big, 70000, 0));
	say("%016lx", (long)hash(big, 62188));
	/* All of it, through the pipe. */
	MUST(ftruncate(g, 0));
	from = to = 0;
	long total = 0, n;
	while ((n = splice(f, &from, p[1], 0, 65536, 0)) > 0)
		while (n > 0) {
			long m = splice(p[0], 0, g, &to, n, 0);
			if (m <= 0) {
				TRY(m);
				return;
			}
			n -= m;
			total += m;
		}
	say("total %ld", total);
	TRY(pread(g, big, 300000, 0));
	say("%016lx", (long)hash(big, 200000));
	/* A hole is zeros. */
	MUST(ftruncate(f, 0));
	MUST(ftruncate(f, 20000));
	from = 5000;
	TRY(splice(f, &from, p[1], 0, 8000, 0));
	say_content("hole", p[0]);
	/* The limit of sizes. */
	signal(SIGXFSZ, SIG_IGN);
	MUST(ftruncate(g, 0));
	MUST(write(p[1], big, 100));
	lseek(g, 10, SEEK_SET);
	TRY_WITHIN(10, splice(p[0], 0, g, 0, 100, 0));
	say_left("refused", p[0]);
	say_content("refused", p[0]);
	/* Devices. */
	int zero = MUST(open("/dev/zero", O_RDWR)), null = MUST(open("/dev/null", O_RDWR));
	MUST(write(p[1], big, 100));
	TRY(splice(p[0], 0, null, 0, 60, 0));
	say_left("thrown away", p[0]);
	say_content("rest", p[0]);
	close(zero); close(null); close(f); close(g);
	end(p);
	int proc = MUST(open("/proc/sys/kernel/ostype", O_RDONLY));
	make(p, 0);
	TRY(splice(proc, 0, p[1], 0, 100, 0));
	TRY(read(p[0], big, 100));
	say("%.5s", big);
	close(proc);
	end(p);
}

static void sockets(void)
{
	int p[2], s[2];
	make(p, O_NONBLOCK);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	MUST(write(p[1], "hello", 5));
	TRY(splice(p[0], 0, s[0], 0, 100, 0));
	TRY(read(s[1], big, 100));
	say("%.5s", big);
	fill(big, 30000, 5);
	MUST(write(s[0], big, 30000));
	long n, total = 0;
	while (total < 30000 && (n = splice(s[1], 0, p[1], 0, 1 << 20, 0)) > 0)
		total += n;
	say("total %ld", total);
	say_content("received", p[0]);
	TRY(splice(s[1], 0, p[1], 0, 10, NB));
	shutdown(s[0], SHUT_WR);
	TRY(splice(s[1], 0, p[1], 0, 10, 0));
	close(s[0]);
	signal(SIGPIPE, SIG_IGN);
	MUST(write(p[1], "hello", 5));
	TRY(splice(p[0], 0, s[1], 0, 5, 0));
	signal(SIGPIPE, SIG_DFL);
	close(s[1]);
	end(p);
}

/* Who waits for a stream has room already for what it will give. */
static void kept_room(void)
{
	int p[2], s[2];
	make(p, 0);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	MUST(write(p[1], "at an odd place", 15));
	pid_t splicer = MUST(fork());
	if (splicer == 0)
		_exit(splice(s[1], 0, p[1], 0, 1 << 20, 0) == 20000 ? 0 : 1);
	until_in_call(splicer, splicer, SYS_splice);
	fill(big, 65536, 9);
	pid_t writer = MUST(fork());
	if (writer == 0)
		_exit(write(p[1], big, 65536) == 65536 ? 0 : 1);
	/* On Linux the splicer holds the pipe's lock, and the state is D. */
	char text[256];
	do {
		sched_yield();
		of_task(writer, writer, "syscall", text, sizeof text);
	} while (strncmp(text, "1 ", 2) || state_of_task(writer, writer) == 'R');
	fill(big, 20000, 10);
	MUST(write(s[0], big, 20000));
	int status;
	MUST(waitpid(splicer, &status, 0));
	say_status("the splicer", status);
	size_t n = 0;
	while (n < 15 + 20000 + 65536)
		n += MUST(read(p[0], big + n, 15 + 20000 + 65536 - n));
	MUST(waitpid(writer, &status, 0));
	say_status("the writer", status);
	say("%.15s, %016lx, %016lx", big, (long)hash(big + 15, 20000), (long)hash(big + 15 + 20000, 65536));
	/* An interrupted wait keeps nothing. */
	splicer = MUST(fork());
	if (splicer == 0) {
		alarm(1);
		splice(s[1], 0, p[1], 0, 1 << 20, 0);
		_exit(0);
	}
	MUST(waitpid(splicer, &status, 0));
	say_status("the interrupted", status);
	TRY(write(p[1], big, 65536));
	end(p);
	end(s);
}

static volatile int signals;
static void count(int number) { signals++; }

/* A connection over loopback with little room on its way. */
static void connect_pair(int s[2])
{
	struct sockaddr_in at = { AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	socklen_t length = sizeof at;
	int little = 8192, listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof little));
	MUST(bind(listener, (void *)&at, sizeof at));
	MUST(listen(listener, 1));
	MUST(getsockname(listener, (void *)&at, &length));
	s[0] = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little));
	MUST(connect(s[0], (void *)&at, sizeof at));
	s[1] = MUST(accept(listener, 0, 0));
	close(listener);
}

/* Who sends to an end that no process can send to any more gets a signal, also where some bytes
   went before. */
static void broken(void)
{
	int s[2], f = file_of("/tmp/splice_a", 1 << 20, 11);
	off_t at = 0;
	signal(SIGPIPE, count);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	close(s[1]);
	TRY(sendfile(s[0], f, &at, 10000));
	say("%d signals", signals);
	close(s[0]);
	make(s, 0);
	close(s[0]);
	TRY(sendfile(s[1], f, &at, 10000));
	say("%d signals", signals);
	close(s[1]);
	connect_pair(s);
	MUST(shutdown(s[0], SHUT_WR));
	TRY(sendfile(s[0], f, &at, 10000));
	say("%d signals", signals);
	end(s);
	connect_pair(s);
	pid_t child = MUST(fork());
	if (child == 0) {
		char byte;
		read(s[1], &byte, 1);
		until_in_call(getppid(), getppid(), SYS_sendfile);
		shutdown(s[0], SHUT_WR);
		/* So that the sender is not told of the bytes that were not read. */
		pause();
	}
	long sent = sendfile(s[0], f, 0, 1 << 20);
	say("some were sent: %d, %d signals", sent > 0 && sent < 1 << 20, signals);
	kill(child, SIGKILL);
	MUST(waitpid(child, 0, 0));
	end(s);
	signal(SIGPIPE, SIG_DFL);
	close(f);
}

static void memory(void)
{
	int p[2];
	make(p, 0);
	fill(big, 300000, 6);
	struct iovec v[3] = { { big, 5 }, { big + 5, 0 }, { big + 5, 9995 } };
	TRY(vmsplice(p[1], v, 3, SPLICE_F_GIFT));
	char *got = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec w[2] = { { got, 4000 }, { got + 4000, 60000 } };
	TRY(vmsplice(p[0], w, 2, 0));
	say("%s", memcmp(got, big, 10000) ? "differs" : "the same");
	v[0] = (struct iovec){ big, 300000 };
	TRY(vmsplice(p[1], v, 1, 0));
	TRY(vmsplice(p[1], v, 1, NB));
	TRY(fcntl(p[1], F_SETFL, O_NONBLOCK));
	say_left("full", p[0]);
	TRY(read(p[0], big + 400000, 65536));
	say("%s", memcmp(big + 400000, big, 65536) ? "differs" : "the same");
	munmap(got, 65536);
	end(p);
}

/* Who waits goes on when there is something, or room, or no process on the other side. */
static void waiting(void)
{
	int p[2], q[2], f = file_of("/tmp/splice_a", 100000, 7);
	make(p, 0);
	make(q, 0);
	pid_t child = MUST(fork());
	if (child == 0) {
		until_in_call(getppid(), getppid(), SYS_splice);
		write(p[1], "late", 4);
		_exit(0);
	}
	TRY(splice(p[0], 0, q[1], 0, 100, 0));
	say_content("late", q[0]);
	MUST(waitpid(child, 0, 0));
	child = MUST(fork());
	if (child == 0) {
		until_in_call(getppid(), getppid(), SYS_splice);
		write(p[1], "file", 4);
		_exit(0);
	}
	TRY(splice(p[0], 0, f, 0, 100, 0));
	MUST(waitpid(child, 0, 0));
	fill(big, 65536, 8);
	MUST(write(q[1], big, 65536));
	child = MUST(fork());
	if (child == 0) {
		static char room[8192];
		until_in_call(getppid(), getppid(), SYS_splice);
		read(q[0], room, 8192);
		_exit(0);
	}
	lseek(f, 0, SEEK_SET);
	TRY(splice(f, 0, q[1], 0, 4096, 0));
	MUST(waitpid(child, 0, 0));
	struct pollfd o = { q[1], POLLOUT, 0 };
	TRY(poll(&o, 1, 0));
	say_content("all", q[0]);
	struct pollfd i = { q[0], POLLIN, 0 };
	TRY(poll(&i, 1, 0));
	child = MUST(fork());
	if (child == 0) {
		until_in_call(getppid(), getppid(), SYS_poll);
		lseek(f, 0, SEEK_SET);
		splice(f, 0, q[1], 0, 1, 0);
		_exit(0);
	}
	TRY(poll(&i, 1, 600000));
	MUST(waitpid(child, 0, 0));
	say_content("one", q[0]);
	child = MUST(fork());
	if (child == 0) {
		close(p[1]);
		close(q[0]);
		signal(SIGALRM, SIG_DFL);
		alarm(1);
		splice(p[0], 0, q[1], 0, 1, 0);
		_exit(0);
	}
	int status;
	MUST(waitpid(child, &status, 0));
	say_status("the interrupted", status);
	close(p[1]);
	TRY(splice(p[0], 0, q[1], 0, 100, 0));
	close(p[0]);
	end(q);
	close(f);
	unlink("/tmp/splice_a");
	unlink("/tmp/splice_b");
}

int main(void)
{
	errors();
	between_pipes();
	files();
	sockets();
	kept_room();
	broken();
	memory();
	waiting();
	return 0;
}
