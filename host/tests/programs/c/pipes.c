/* Pipes and FIFOs: bytes, ends, capacity, signals, many writers. */
#include "say.h"
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static void bulk(void)
{
	int p[2];
	MUST(pipe(p));
	pid_t child = MUST(fork());
	if (child == 0) {
		close(p[0]);
		static unsigned char data[3333];
		uint32_t x = 1;
		for (int round = 0; round < 1000; round++) {
			for (size_t i = 0; i < sizeof data; i++)
				data[i] = (x = x * 1664525 + 1013904223) >> 24;
			for (size_t done = 0; done < sizeof data;)
				done += MUST(write(p[1], data + done, sizeof data - done));
		}
		_exit(0);
	}
	close(p[1]);
	static unsigned char data[5000];
	uint32_t x = 1;
	size_t total = 0, wrong = 0;
	ssize_t n;
	while ((n = MUST(read(p[0], data, 1 + total % sizeof data))) > 0)
		for (ssize_t i = 0; i < n; i++, total++)
			wrong += data[i] != (unsigned char)((x = x * 1664525 + 1013904223) >> 24);
	say("%zu bytes came, %zu of them wrong", total, wrong);
	MUST(waitpid(child, NULL, 0));
	TRY(read(p[0], data, 10));
}

static void capacity(void)
{
	int p[2];
	MUST(pipe2(p, O_NONBLOCK));
	static char page[4096];
	long total = 0;
	ssize_t n;
	while ((n = write(p[1], page, sizeof page)) > 0)
		total += n;
	say("full after %ld with %s", total, strerrorname_np(errno));
	TRY(write(p[1], page, 1));
	int queued;
	TRY(ioctl(p[0], FIONREAD, &queued));
	say("%d queued", queued);
	struct pollfd w = { p[1], POLLOUT, 0 };
	TRY(poll(&w, 1, 0));
	TRY(read(p[0], page, 4096));
	TRY(poll(&w, 1, 0));
	say("events %#x", w.revents);
	TRY(write(p[1], page, 4096));
	TRY(fcntl(p[1], F_GETPIPE_SZ));
	long got = 0;
	while ((n = read(p[0], page, 1000)) > 0)
		got += n;
	say("%ld came out, then %s", got, strerrorname_np(errno));
	TRY(read(p[0], page, 0));
	TRY(write(p[1], page, 0));
	TRY(write(p[0], page, 1));
	TRY(read(p[1], page, 1));
	TRY(lseek(p[0], 0, SEEK_CUR));
	TRY(pread(p[0], page, 1, 0));
	TRY(ftruncate(p[1], 0));
	HOLDS((fcntl(p[0], F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == (O_RDONLY | O_NONBLOCK));
	HOLDS((fcntl(p[1], F_GETFL) & O_ACCMODE) == O_WRONLY);
	struct stat st;
	fstat(p[0], &st);
	HOLDS(S_ISFIFO(st.st_mode));
}

static void broken(void)
{
	int p[2];
	MUST(pipe(p));
	close(p[0]);
	IN_CHILD("writer", if (write(p[1], "x", 1)) { });
	signal(SIGPIPE, SIG_IGN);
	TRY(write(p[1], "x", 1));
	struct pollfd w = { p[1], POLLOUT, 0 };
	TRY(poll(&w, 1, 0));
	say("events %#x", w.revents & ~POLLOUT);
	close(p[1]);
	signal(SIGPIPE, SIG_DFL);
	TRY(write(p[1], "x", 1));
	TRY(pipe((int *)8));
	TRY(pipe2(p, 0x40000000));
}

static void writers(void)
{
	/* writes up to PIPE_BUF do not mix */
	int p[2];
	MUST(pipe(p));
	for (int w = 0; w < 8; w++)
		if (MUST(fork()) == 0) {
			char record[512];
			memset(record, 'a' + w, sizeof record);
			for (int i = 0; i < 100; i++)
				MUST(write(p[1], record, sizeof record));
			_exit(0);
		}
	close(p[1]);
	int whole = 0, torn = 0;
	char record[512];
	for (;;) {
		size_t have = 0;
		ssize_t n;
		while (have < sizeof record && (n = MUST(read(p[0], record + have, sizeof record - have))) > 0)
			have += n;
		if (have == 0)
			break;
		int same = have == sizeof record;
		for (size_t i = 1; i < have; i++)
			same &= record[i] == record[0];
		*(same ? &whole : &torn) += 1;
	}
	say("%d whole records, %d torn", whole, torn);
	while (wait(NULL) > 0)
		;
}

static void vectors(void)
{
	int p[2];
	MUST(pipe(p));
	struct iovec out[3] = { { "abc", 3 }, { "", 0 }, { "defgh", 5 } };
	TRY(writev(p[1], out, 3));
	char x[4] = "", y[10] = "";
	struct iovec in[2] = { { x, 2 }, { y, 9 } };
	TRY(readv(p[0], in, 2));
	say("%s %s", x, y);
	TRY(readv(p[0], in, -1));
	TRY(writev(p[1], in, 2000));
	TRY(writev(p[1], (void *)8, 1));
	TRY(dup2(p[1], p[1]) == p[1]);
	TRY(dup2(p[1], -1));
	TRY(dup3(p[1], p[1], 0));
	HOLDS(dup2(p[1], 50) == 50);
	TRY(write(50, "via 50", 6));
	memset(y, 0, sizeof y);
	TRY(read(p[0], y, 9));
	say("%s", y);
	TRY(close(50));
	TRY(close(50));
}

static void fifo(void)
{
	unlink("fifo");
	TRY(mkfifo("fifo", 0600));
	TRY(mkfifo("fifo", 0600));
	TRY(open("fifo", O_WRONLY | O_NONBLOCK));
	pid_t child = MUST(fork());
	if (child == 0) {
		int fd = MUST(open("fifo", O_WRONLY));
		MUST(write(fd, "through a name", 14));
		_exit(0);
	}
	int fd = MUST(open("fifo", O_RDONLY));
	char text[20] = "";
	MUST(read(fd, text, 19));
	say("%s", text);
	MUST(waitpid(child, NULL, 0));
	TRY(read(fd, text, 19));
	close(fd);
	DO(fd = open("fifo", O_RDONLY | O_NONBLOCK));
	TRY(read(fd, text, 19));
	/* A reader is hung up once its own writers have gone, and not by those of an earlier reader. */
	struct pollfd r = { fd, POLLIN, 0 };
	TRY(poll(&r, 1, 0));
	close(MUST(open("fifo", O_WRONLY)));
	TRY(poll(&r, 1, 0));
	say("events %#x", r.revents);
	struct pollfd later = { MUST(open("fifo", O_RDONLY | O_NONBLOCK)), POLLIN, 0 };
	TRY(poll(&later, 1, 0));
	TRY(poll(&r, 1, 0));
	int writer = MUST(open("fifo", O_WRONLY));
	TRY(poll(&later, 1, 0));
	TRY(poll(&r, 1, 0));
	close(writer);
	TRY(poll(&later, 1, 0));
	say("events %#x", later.revents);
	close(later.fd);
	close(fd);
	unlink("fifo");
}

/* Many writers wait at one full pipe for a reader who takes little at a time: no writer is left. */
static void crowd(void)
{
	enum { WRITERS = 8, MESSAGES = 400, BYTES = 500 };
	int p[2], gate[2];
	MUST(pipe(p));
	MUST(pipe(gate));
	for (int w = 0; w < WRITERS; w++) {
		if (MUST(fork()) == 0) {
			char message[BYTES], byte;
			memset(message, 'a' + w, sizeof message);
			close(p[0]);
			close(gate[1]);
			MUST(read(gate[0], &byte, 1));
			for (int i = 0; i < MESSAGES; i++)
				if (write(p[1], message, sizeof message) != BYTES)
					say("a message went in part");
			_exit(0);
		}
	}
	close(p[1]);
	MUST(write(gate[1], "12345678", WRITERS));
	/* Let them fill it, so that all wait. */
	int queued = 0;
	for (int i = 0; i < 300000 && queued < 60000; i++) {
		MUST(ioctl(p[0], FIONREAD, &queued));
		usleep(1000);
	}
	HOLDS(queued >= 60000);
	char message[BYTES];
	size_t count = 0, torn = 0;
	ssize_t n;
	while ((n = MUST(read(p[0], message, sizeof message))) > 0) {
		torn += n != BYTES || message[0] != message[BYTES - 1];
		count++;
	}
	for (int w = 0; w < WRITERS; w++)
		MUST(wait(NULL));
	say("%zu messages came, %zu of them torn", count, torn);
}

/* A pair of stream sockets: writable again when it was read empty; who waits to write goes on. */
static void streams(void)
{
	int s[2];
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
	static char data[10000];
	size_t sent = 0, got = 0;
	ssize_t n;
	while ((n = write(s[0], data, sizeof data)) > 0)
		sent += n;
	say("full with %s", strerrorname_np(errno));
	struct pollfd w = { s[0], POLLOUT, 0 };
	TRY(poll(&w, 1, 0));
	while ((n = read(s[1], data, sizeof data)) > 0)
		got += n;
	HOLDS(got == sent && sent >= 65536);
	TRY(poll(&w, 1, 0));
	say("events %#x", w.revents);
	MUST(fcntl(s[0], F_SETFL, 0));
	MUST(fcntl(s[1], F_SETFL, 0));
	pid_t child = MUST(fork());
	if (child == 0) {
		close(s[1]);
		for (int round = 0; round < 200; round++) {
			memset(data, round, sizeof data);
			for (size_t done = 0; done < sizeof data;)
				done += MUST(write(s[0], data + done, sizeof data - done));
		}
		_exit(0);
	}
	close(s[0]);
	size_t total = 0, wrong = 0;
	while ((n = MUST(read(s[1], data, 7777))) > 0)
		for (ssize_t i = 0; i < n; i++, total++)
			wrong += data[i] != (char)(total / sizeof data);
	MUST(waitpid(child, NULL, 0));
	say("%zu bytes came, %zu of them wrong", total, wrong);
}

/* Reads all packets of a pipe, which does not wait. */
static void say_packets(const char *what, int fd)
{
	static char got[20000];
	char line[400] = "";
	ssize_t n;
	while ((n = read(fd, got, sizeof got)) > 0)
		snprintf(line + strlen(line), sizeof line - strlen(line), " %zd %.3s", n, n < 3 ? "" : got);
	say("%s:%s", what, line);
}

/* Packets that go on to another pipe are packets there. */
static void carried_packets(int *p, char *data)
{
	int q[2];
	MUST(pipe2(q, O_NONBLOCK));
	for (int i = 0; i < 3; i++)
		MUST(write(p[1], data + i, 3 + i));
	MUST(write(p[1], data, 4096));
	MUST(write(p[1], data + 1, 4096));
	TRY(tee(p[0], q[1], 20000, 0));
	say_packets("a copy", q[0]);
	TRY(tee(p[0], q[1], 9, 0));
	say_packets("a copy of a part", q[0]);
	TRY(splice(p[0], 0, q[1], 0, 5, 0));
	say_packets("a part", q[0]);
	TRY(splice(p[0], 0, q[1], 0, 20000, 0));
	say_packets("the rest", q[0]);
	/* Behind bytes, and before some. */
	MUST(write(q[1], data, 4));
	MUST(write(p[1], data, 5));
	MUST(fcntl(p[1], F_SETFL, O_NONBLOCK));
	MUST(write(p[1], data + 3, 6));
	MUST(write(p[1], data + 4, 7));
	TRY(splice(p[0], 0, q[1], 0, 20000, 0));
	say_packets("among bytes", q[0]);
	MUST(fcntl(p[1], F_SETFL, O_NONBLOCK | O_DIRECT));
	/* No more of them than places. */
	MUST(fcntl(q[1], F_SETPIPE_SZ, 2 * 4096));
	for (int i = 0; i < 3; i++)
		MUST(write(p[1], data + i, 3 + i));
	TRY(splice(p[0], 0, q[1], 0, 20000, 0));
	TRY(splice(p[0], 0, q[1], 0, 20000, 0));
	TRY(tee(p[0], q[1], 20000, 0));
	say_packets("the first two", q[0]);
	TRY(splice(p[0], 0, q[1], 0, 20000, 0));
	say_packets("the last", q[0]);
	close(q[0]), close(q[1]);
}

/* With O_DIRECT each write is a packet, and a read takes one. */
static void packets(void)
{
	static char data[20000], got[20000];
	int p[2], q[2], n;
	for (unsigned i = 0; i < sizeof data; i++)
		data[i] = 'a' + i % 26;
	TRY(pipe2(p, O_DIRECT | O_NONBLOCK));
	HOLDS(!(fcntl(p[0], F_GETFL) & O_DIRECT) && (fcntl(p[1], F_GETFL) & O_DIRECT));
	TRY(write(p[1], data, 3));
	TRY(write(p[1], data + 3, 5));
	TRY(write(p[1], "", 0));
	TRY(ioctl(p[0], FIONREAD, &n));
	say("%d", n);
	TRY(read(p[0], got, 100));
	TRY(read(p[0], got, 2));
	say("%.2s", got);
	TRY(read(p[0], got, 100));
	/* More than PIPE_BUF are several. */
	TRY(write(p[1], data, 10000));
	TRY(read(p[0], got, 20000));
	TRY(read(p[0], got, 20000));
	TRY(read(p[0], got, 20000));
	TRY(read(p[0], got, 20000));
	/* As many as the pipe has pages. */
	for (n = 0; write(p[1], data, 1) == 1; n++)
		;
	say("%d packets, then %s", n, strerrorname_np(errno));
	struct pollfd w = { p[1], POLLOUT, 0 };
	TRY(poll(&w, 1, 0));
	TRY(fcntl(p[1], F_SETPIPE_SZ, 8 * 4096));
	TRY(read(p[0], got, 100));
	TRY(poll(&w, 1, 0));
	while (read(p[0], got, 1) == 1)
		;
	/* Bytes before and behind a packet are none. */
	TRY(fcntl(p[1], F_SETFL, O_NONBLOCK));
	TRY(write(p[1], data, 4096));
	TRY(fcntl(p[1], F_SETFL, O_NONBLOCK | O_DIRECT));
	TRY(write(p[1], data, 5));
	TRY(fcntl(p[1], F_SETFL, O_NONBLOCK));
	TRY(write(p[1], data, 7));
	TRY(write(p[1], data, 7));
	TRY(read(p[0], got, 4090));
	TRY(read(p[0], got, 6));
	TRY(read(p[0], got, 3));
	TRY(read(p[0], got, 100));
	TRY(write(p[1], data, 4096));
	TRY(fcntl(p[1], F_SETFL, O_NONBLOCK | O_DIRECT));
	TRY(write(p[1], data, 5));
	TRY(read(p[0], got, 5000));
	TRY(write(p[1], data, 4096));
	TRY(write(p[1], data, 5));
	/* A transfer takes parts of packets. */
	MUST(pipe(q));
	TRY(splice(p[0], 0, q[1], 0, 4000, 0));
	TRY(read(p[0], got, 10));
	TRY(read(p[0], got, 1));
	TRY(read(p[0], got, 1));
	TRY(read(q[0], got, 10));
	TRY(write(p[1], data, 10));
	int f = MUST(open("packets", O_CREAT | O_RDWR | O_TRUNC, 0600));
	TRY(splice(p[0], 0, f, 0, 4, 0));
	TRY(read(p[0], got, 2));
	TRY(read(p[0], got, 2));
	/* Nor do sendfile and vmsplice, and a reader without memory loses none. */
	while (read(p[0], got, 100) > 0)
		;
	MUST(pwrite(f, data, 6000, 0));
	MUST(lseek(f, 0, SEEK_SET));
	TRY(sendfile(p[1], f, 0, 6000));
	int sum = 0;
	while ((n = read(p[0], got, 500)) > 0)
		sum += n;
	say("%d bytes came by sendfile", sum);
	TRY(write(p[1], data, 20));
	struct iovec piece = { got, 10 };
	TRY(vmsplice(p[0], &piece, 1, 0));
	TRY(read(p[0], got, 100));
	close(f);
	unlink("packets");
	carried_packets(p, data);
	/* A full pipe's writer waits for a place. */
	TRY(fcntl(p[1], F_SETFL, O_DIRECT));
	TRY(fcntl(p[0], F_SETFL, 0));
	pid_t child = MUST(fork());
	if (child == 0) {
		for (n = 0; n < 200; n++)
			MUST(write(p[1], data, n % 50 + 1));
		_exit(0);
	}
	close(p[1]);
	int count = 0, wrong = 0;
	while ((n = MUST(read(p[0], got, 25))) > 0) {
		int sent = count % 50 + 1;
		wrong += n != (sent < 25 ? sent : 25);
		count++;
	}
	say("%d packets came, %d of them wrong", count, wrong);
	MUST(waitpid(child, 0, 0));
	close(p[0]), close(q[0]), close(q[1]);
}

static int gone_pipe[2];
static volatile int broken_pipes;

static void count_broken(int signal)
{
	(void)signal;
	broken_pipes++;
}

/* Waits until the pipe is full and its writer has had time to wait for room, then closes the reading end. */
static void *stop_reading(void *unused)
{
	struct pollfd room = { gone_pipe[1], POLLOUT, 0 };
	(void)unused;
	while (poll(&room, 1, 0))
		sleep_ms(1);
	sleep_ms(50);
	close(gone_pipe[0]);
	return NULL;
}

/* The reader goes while a write waits that has written a part: that is what it gives, and the signal comes. */
static void broken_in_between(void)
{
	static char data[200000];
	pthread_t closer;
	signal(SIGPIPE, count_broken);
	MUST(pipe(gone_pipe));
	pthread_create(&closer, NULL, stop_reading, NULL);
	TRY(write(gone_pipe[1], data, sizeof data));
	pthread_join(closer, NULL);
	say("%d signals", broken_pipes);
	TRY(write(gone_pipe[1], data, 1));
	say("%d signals", broken_pipes);
	close(gone_pipe[1]);
	signal(SIGPIPE, SIG_DFL);
}

int main(void)
{
	bulk();
	capacity();
	broken();
	broken_in_between();
	writers();
	vectors();
	fifo();
	crowd();
	streams();
	packets();
	return 0;
}
