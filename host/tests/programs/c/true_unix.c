/* What sockets of AF_UNIX answer: names, connections, messages, descriptors, ends. */
#include "say.h"
#include "blocked.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define LEN(a) (offsetof(struct sockaddr_un, sun_path) + strlen((a).sun_path) + 1)

static struct sockaddr_un named(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	strcpy(a.sun_path, path);
	return a;
}

static socklen_t abstract(struct sockaddr_un *a, const char *name)
{
	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	memcpy(a->sun_path + 1, name, strlen(name));
	return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
}

static void say_name(const char *what, int s, int (*call)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_un a;
	memset(&a, '#', sizeof a);
	socklen_t l = sizeof a;
	errno = 0;
	int r = call(s, (void *)&a, &l);
	if (r == -1) {
		say("%s: %s", what, strerrorname_np(errno));
		return;
	}
	char text[sizeof a + 1] = "";
	int n = (int)l - (int)offsetof(struct sockaddr_un, sun_path);
	for (int i = 0; i < n; i++)
		text[i] = a.sun_path[i] ? a.sun_path[i] : '@';
	say("%s: family %d, length %u, %s", what, a.sun_family, l, text);
}

static void say_poll(const char *what, int s)
{
	struct pollfd p = { s, POLLIN | POLLOUT | POLLRDHUP, 0 };
	int r = poll(&p, 1, 0);
	say("%s: poll %d, %#x", what, r, p.revents);
}

static void names(void)
{
	unlink("/tmp/a"); unlink("/tmp/b");
	struct sockaddr_un a = named("/tmp/a"), b = named("/tmp/b"), x;
	int s = MUST(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	TRY(fcntl(s, F_GETFD));
	TRY(fcntl(s, F_GETFL));
	say_name("unbound", s, getsockname);
	say_name("unbound", s, getpeername);
	TRY(listen(s, 5));
	TRY(bind(s, (void *)&a, 1));
	TRY(bind(s, (void *)&a, 200));
	TRY(bind(s, (void *)8, 20));
	a.sun_family = AF_INET;
	TRY(bind(s, (void *)&a, sizeof a));
	a.sun_family = AF_UNIX;
	TRY(bind(s, (void *)&a, sizeof a));
	say_name("bound", s, getsockname);
	TRY(bind(s, (void *)&b, sizeof b));
	TRY(bind(s, (void *)&a, sizeof a));
	struct stat st;
	TRY(stat("/tmp/a", &st));
	say("mode %o, size %ld, links %lu", st.st_mode, (long)st.st_size, (long)st.st_nlink);
	TRY(open("/tmp/a", O_RDWR));
	int t = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
	TRY(bind(t, (void *)&a, sizeof a));
	TRY(connect(t, (void *)&a, sizeof a));
	TRY(connect(t, (void *)&b, sizeof b));
	struct sockaddr_un none = named("/tmp/no/where");
	TRY(bind(t, (void *)&none, sizeof none));
	TRY(connect(t, (void *)&none, sizeof none));
	int d = MUST(socket(AF_UNIX, SOCK_DGRAM, 0));
	TRY(connect(d, (void *)&a, sizeof a));
	TRY(listen(d, 1));
	TRY(accept(d, 0, 0));
	TRY(accept(t, 0, 0));
	close(s);
	TRY(connect(t, (void *)&a, sizeof a));
	TRY(unlink("/tmp/a"));
	close(creat("/tmp/b", 0600));
	TRY(connect(t, (void *)&b, sizeof b));
	TRY(unlink("/tmp/b"));
	socklen_t l = abstract(&x, "some name");
	TRY(bind(t, (void *)&x, l));
	say_name("abstract", t, getsockname);
	s = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
	TRY(bind(s, (void *)&x, l));
	TRY(connect(s, (void *)&x, l));
	TRY(listen(t, 5));
	TRY(connect(s, (void *)&x, l - 1));
	TRY(bind(d, (void *)&x, l));
	close(d);
	d = MUST(socket(AF_UNIX, SOCK_DGRAM, 0));
	TRY(connect(d, (void *)&x, l));
	TRY(connect(s, (void *)&x, l));
	TRY(connect(s, (void *)&x, l));
	TRY(connect(t, (void *)&x, l));
	say_name("client", s, getpeername);
	say_name("client", s, getsockname);
	int e = MUST(accept4(t, 0, 0, SOCK_NONBLOCK));
	TRY(fcntl(e, F_GETFL));
	say_name("server", e, getpeername);
	say_name("server", e, getsockname);
	TRY(accept4(t, 0, 0, 1));
	close(d); close(e); close(s); close(t);
	s = MUST(socket(AF_UNIX, SOCK_DGRAM, 0));
	sa_family_t only = AF_UNIX;
	TRY(bind(s, (void *)&only, sizeof only));
	struct sockaddr_un got;
	l = sizeof got;
	MUST(getsockname(s, (void *)&got, &l));
	say("autobind: length %u, %d", l, got.sun_path[0]);
	close(s);
	TRY(bind(0, (void *)&x, l));
	TRY(bind(999, (void *)&x, l));
	TRY(socket(AF_UNIX, SOCK_STREAM, 9));
	TRY(socket(AF_UNIX, SOCK_RDM, 0));
	TRY(socket(AF_UNIX, SOCK_STREAM | 0x10, 0));
}

static void backlog(void)
{
	struct sockaddr_un x;
	socklen_t l = abstract(&x, "backlog");
	int s = MUST(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)), c[4];
	MUST(bind(s, (void *)&x, l));
	MUST(listen(s, 1));
	say_poll("listener", s);
	TRY(accept(s, 0, 0));
	for (int i = 0; i < 4; i++) {
		c[i] = MUST(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
		TRY(connect(c[i], (void *)&x, l));
	}
	say_poll("listener", s);
	say_poll("connected", c[0]);
	say_poll("refused", c[3]);
	TRY(write(c[0], "abc", 3));
	TRY(write(c[3], "abc", 3));
	int d = MUST(accept(s, 0, 0));
	char b[10];
	TRY(read(d, b, 10));
	TRY(recv(d, b, 10, MSG_DONTWAIT));
	TRY(connect(c[2], (void *)&x, l));
	TRY(listen(s, 5));
	TRY(connect(c[3], (void *)&x, l));
	TRY(write(c[1], "x", 1));
	close(s);
	say_poll("abandoned", c[1]);
	TRY(write(c[1], "x", 1));
	TRY(read(c[1], b, 1));
	TRY(read(c[1], b, 1));
	say_poll("abandoned", c[1]);
	/* Who waits for a place gets it. */
	s = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
	MUST(bind(s, (void *)&x, l));
	MUST(listen(s, 0));
	int first = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
	MUST(connect(first, (void *)&x, l));
	pid_t child = MUST(fork());
	if (child == 0) {
		int second = socket(AF_UNIX, SOCK_STREAM, 0);
		int r = connect(second, (void *)&x, l);
		_exit(r == 0 && write(second, "2", 1) == 1 ? 7 : 8);
	}
	until_in_call(child, child, SYS_connect);
	TRY(waitpid(child, 0, WNOHANG));
	close(MUST(accept(s, 0, 0)));
	d = MUST(accept(s, 0, 0));
	TRY(read(d, b, 10));
	int status;
	MUST(waitpid(child, &status, 0));
	say_status("the second", status);
	struct timeval soon = { 0, 50000 };
	MUST(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	TRY(accept(s, 0, 0));
	close(s); close(d); close(first);
}

static void ends(void)
{
	int s[2];
	char b[64];
	signal(SIGPIPE, SIG_IGN);
	for (int type = SOCK_STREAM; type <= SOCK_SEQPACKET; type += SOCK_SEQPACKET - SOCK_STREAM) {
		say("type %d", type);
		MUST(socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, s));
		say_poll("fresh", s[0]);
		TRY(recv(s[0], b, 64, 0));
		TRY(write(s[1], "hello", 5));
		say_poll("readable", s[0]);
		TRY(recv(s[0], b, 3, MSG_PEEK));
		TRY(recv(s[0], b, 3, MSG_TRUNC));
		TRY(recv(s[0], b, 64, 0));
		TRY(shutdown(s[1], SHUT_WR));
		say_poll("ended", s[0]);
		say_poll("shut", s[1]);
		TRY(write(s[1], "x", 1));
		TRY(recv(s[0], b, 64, 0));
		TRY(write(s[0], "y", 1));
		TRY(recv(s[1], b, 64, 0));
		TRY(shutdown(s[0], SHUT_RD));
		TRY(shutdown(s[1], SHUT_RD));
		TRY(write(s[0], "y", 1));
		say_poll("both", s[0]);
		TRY(shutdown(s[0], 9));
		close(s[0]);
		close(s[1]);
		MUST(socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, s));
		TRY(write(s[0], "unread", 6));
		TRY(write(s[1], "to you", 6));
		close(s[1]);
		say_poll("peer gone, unread", s[0]);
		TRY(write(s[0], "x", 1));
		TRY(read(s[0], b, 64));
		TRY(read(s[0], b, 64));
		TRY(read(s[0], b, 64));
		say_poll("peer gone", s[0]);
		close(s[0]);
		MUST(socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, s));
		close(s[1]);
		TRY(read(s[0], b, 64));
		TRY(send(s[0], "x", 1, MSG_NOSIGNAL));
		say_poll("peer gone", s[0]);
		int error = -1;
		socklen_t l = sizeof error;
		TRY(getsockopt(s[0], SOL_SOCKET, SO_ERROR, &error, &l));
		say("error %d", error);
		close(s[0]);
	}
	signal(SIGPIPE, SIG_DFL);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	close(s[1]);
	IN_CHILD("a writer", write(s[0], "x", 1));
	IN_CHILD("a quiet writer", send(s[0], "x", 1, MSG_NOSIGNAL));
	close(s[0]);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	TRY(write(s[0], "ab", 2));
	if (fork() == 0) {
		until_in_call(getppid(), getppid(), SYS_recvfrom);
		write(s[0], "cd", 2);
		_exit(0);
	}
	TRY(recv(s[1], b, 4, MSG_WAITALL));
	wait(NULL);
	TRY(recv(s[1], b, 4, MSG_OOB));
	TRY(send(s[1], b, 4, 0));
	int n;
	TRY(ioctl(s[0], FIONREAD, &n));
	say("%d bytes", n);
	TRY(recv(s[0], b, 0, 0));
	TRY(recv(s[0], b, 64, MSG_DONTWAIT));
	TRY(recv(s[0], b, 64, MSG_DONTWAIT));
	struct timeval soon = { 0, 30000 };
	MUST(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	TRY(recv(s[0], b, 64, 0));
	close(s[0]);
	close(s[1]);
	s[0] = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
	TRY(read(s[0], b, 1));
	TRY(write(s[0], b, 1));
	say_poll("never connected", s[0]);
	s[1] = MUST(socket(AF_UNIX, SOCK_SEQPACKET, 0));
	TRY(recv(s[1], b, 1, 0));
	TRY(send(s[1], b, 1, 0));
	close(s[0]);
	close(s[1]);
}

static void datagrams(void)
{
	struct sockaddr_un a, b, from;
	socklen_t la = abstract(&a, "dgram a"), lb = abstract(&b, "dgram b"), lf;
	int x = MUST(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	int y = MUST(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	int z = MUST(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	char m[100];
	MUST(bind(x, (void *)&a, la));
	say_poll("bound", x);
	TRY(send(y, "a", 1, 0));
	TRY(sendto(y, "nameless", 8, 0, (void *)&a, la));
	lf = sizeof from;
	TRY(recvfrom(x, m, 100, 0, (void *)&from, &lf));
	say("source of length %u", lf);
	MUST(bind(y, (void *)&b, lb));
	TRY(sendto(y, "named", 5, 0, (void *)&a, la));
	TRY(sendto(y, "", 0, 0, (void *)&a, la));
	lf = sizeof from;
	TRY(recvfrom(x, m, 3, MSG_TRUNC, (void *)&from, &lf));
	say("source %.*s", (int)lf - 3, from.sun_path + 1);
	say_poll("empty message", x);
	TRY(recv(x, m, 3, 0));
	TRY(recv(x, m, 3, 0));
	TRY(connect(y, (void *)&a, la));
	say_name("connected", y, getpeername);
	int sent = 0;
	while (send(y, "1", 1, 0) == 1)
		sent++;
	say("%d messages, then %s", sent, strerrorname_np(errno));
	say_poll("full", y);
	TRY(recv(x, m, 1, 0));
	say_poll("a place", y);
	TRY(connect(x, (void *)&b, lb));
	TRY(sendto(z, "x", 1, 0, (void *)&a, la));
	TRY(connect(z, (void *)&a, la));
	TRY(send(x, "to y", 4, 0));
	TRY(recv(y, m, 100, 0));
	close(x);
	TRY(send(y, "x", 1, 0));
	TRY(send(y, "x", 1, 0));
	TRY(recv(y, m, 100, 0));
	TRY(sendto(y, "x", 1, 0, (void *)&a, la));
	static char large[300000];
	TRY(sendto(z, large, sizeof large, 0, (void *)&b, lb));
	TRY(sendto(z, large, 100000, 0, (void *)&b, lb));
	TRY(recv(y, large, sizeof large, MSG_TRUNC));
	struct sockaddr none = { AF_UNSPEC };
	TRY(connect(z, &none, sizeof none));
	TRY(connect(z, (void *)&b, lb));
	TRY(connect(z, &none, sizeof none));
	TRY(send(z, "x", 1, 0));
	close(y);
	close(z);
}

static ssize_t pass(int s, const char *text, const int *fds, int count, int flags)
{
	char control[CMSG_SPACE(4 * 300)] = "";
	struct iovec io = { (void *)text, strlen(text) };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
	if (count) {
		m.msg_control = control;
		m.msg_controllen = CMSG_LEN(4 * count);
		struct cmsghdr *c = (void *)control;
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(4 * count);
		memcpy(CMSG_DATA(c), fds, 4 * count);
	}
	return sendmsg(s, &m, flags);
}

/* Receives and says what came; the descriptors are closed, or the first is given back. */
static int take(int s, size_t room, size_t control_room, int flags, int keep)
{
	char text[64] = "", control[2048] = "";
	struct iovec io = { text, room };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = control_room };
	errno = 0;
	ssize_t n = recvmsg(s, &m, flags);
	if (n == -1) {
		say("recvmsg: %s", strerrorname_np(errno));
		return -1;
	}
	say("recvmsg: %zd \"%.*s\", flags %#x, control %zu", n, (int)n, text, m.msg_flags, m.msg_controllen);
	int first = -1;
	if (m.msg_controllen >= sizeof(struct cmsghdr))
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_type == SCM_RIGHTS) {
			int count = (c->cmsg_len - CMSG_LEN(0)) / 4, *fds = (void *)CMSG_DATA(c);
			say("  %d descriptors, closed on exec: %d", count, fcntl(fds[0], F_GETFD));
			for (int i = 0; i < count; i++)
				if (i == 0 && keep)
					first = fds[0];
				else
					close(fds[i]);
		} else {
			struct ucred *u = (void *)CMSG_DATA(c);
			say("  type %d length %zu: pid %s, uid %u, gid %u", c->cmsg_type, (size_t)c->cmsg_len,
			    u->pid == getpid() ? "mine" : u->pid ? "another" : "none", u->uid, u->gid);
		}
	}
	return first;
}

/* Each user may have as many descriptors on their way as the process may have open, and one more. */
static void on_their_way(void)
{
	int s[2], count = 0;
	struct rlimit few = { 20, 20 };
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
	pid_t child = MUST(fork());
	if (child == 0) {
		MUST(setrlimit(RLIMIT_NOFILE, &few));
		MUST(setresuid(4321, 4321, 4321));
		while (count < 100 && pass(s[0], "x", s, 1, 0) == 1)
			count++;
		say("%d were sent, then %s", count, strerrorname_np(errno));
		take(s[1], 1, 100, 0, 0);
		const int more[] = { s[0], s[1], s[0] };
		TRY(pass(s[0], "x", more, 3, 0));
		TRY(pass(s[0], "x", s, 1, 0));
		pid_t other = MUST(fork());
		if (other == 0) {
			TRY(pass(s[0], "x", s, 1, 0));
			_exit(0);
		}
		MUST(waitpid(other, 0, 0));
		_exit(0);
	}
	MUST(waitpid(child, 0, 0));
	child = MUST(fork());
	if (child == 0) {
		MUST(setrlimit(RLIMIT_NOFILE, &few));
		MUST(setresuid(4322, 4322, 4322));
		TRY(pass(s[0], "x", s, 1, 0));
		_exit(0);
	}
	MUST(waitpid(child, 0, 0));
	child = MUST(fork());
	if (child == 0) {
		MUST(setrlimit(RLIMIT_NOFILE, &few));
		while (count < 40 && pass(s[0], "x", s, 1, 0) == 1)
			count++;
		say("root sent %d", count);
		_exit(0);
	}
	MUST(waitpid(child, 0, 0));
	close(s[0]), close(s[1]);
}

static void descriptors(void)
{
	int s[2], p[2];
	char b[64];
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
	MUST(pipe(p));
	int bad[] = { p[0], 999 }, two[] = { p[0], p[1] };
	TRY(pass(s[0], "bad", bad, 2, 0));
	static int many[300];
	for (int i = 0; i < 300; i++)
		many[i] = p[1];
	TRY(pass(s[0], "many", many, 254, 0));
	TRY(pass(s[0], "one", two + 1, 1, 0));
	int w = take(s[1], 64, 100, 0, 1);
	MUST(write(w, "through", 7));
	TRY(read(p[0], b, 64));
	close(w);
	TRY(pass(s[0], "a", NULL, 0, 0));
	TRY(pass(s[0], "b", two, 2, 0));
	TRY(pass(s[0], "c", NULL, 0, 0));
	TRY(pass(s[0], "d", two, 1, 0));
	TRY(pass(s[0], "e", two, 1, 0));
	take(s[1], 64, 100, MSG_PEEK, 0);
	take(s[1], 64, 100, MSG_CMSG_CLOEXEC, 0);
	take(s[1], 64, CMSG_LEN(0), 0, 0);
	take(s[1], 64, 0, 0, 0);
	take(s[1], 64, 100, 0, 0);
	TRY(pass(s[0], "two", two, 2, 0));
	take(s[1], 64, CMSG_LEN(4), 0, 0);
	TRY(pass(s[0], "two", two, 2, 0));
	TRY(read(s[1], b, 64));
	TRY(pass(s[0], "253", many, 253, 0));
	take(s[1], 64, 2048, 0, 0);
	close(s[0]);
	take(s[1], 64, 100, 0, 0);
	close(s[1]);
	/* Descriptors that were not received are closed with the socket. */
	MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
	int q[2];
	MUST(pipe(q));
	MUST(pass(s[0], "lost", q + 1, 1, 0));
	close(q[1]);
	struct pollfd r = { q[0], POLLIN, 0 };
	TRY(poll(&r, 1, 0));
	close(s[0]);
	close(s[1]);
	TRY(poll(&r, 1, 600000));
	TRY(read(q[0], b, 1));
	/* A socket on its way through itself is found once no process can receive it. */
	MUST(pipe(q));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	MUST(pass(s[0], "self", s + 1, 1, 0));
	MUST(pass(s[0], "pipe", q + 1, 1, 0));
	close(q[1]);
	close(s[0]);
	close(s[1]);
	int other[2];
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, other));
	close(other[0]);
	close(other[1]);
	r.fd = q[0];
	TRY(poll(&r, 1, 600000));
	say("events %#x", r.revents);
	/* A socket whose other end is on its way is received. */
	int t[2];
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, t));
	MUST(pass(s[0], "t1", t + 1, 1, 0));
	close(t[1]);
	MUST(write(t[0], "kept", 4));
	sleep_ms(1500);
	int got = take(s[1], 64, 100, 0, 1);
	TRY(read(got, b, 64));
	close(got); close(t[0]); close(s[0]); close(s[1]);
	/* A chain that is dropped as a whole. */
	int head = -1;
	for (int i = 0; i < 400; i++) {
		MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
		if (head != -1) {
			MUST(pass(s[0], "link", &head, 1, 0));
			close(head);
		}
		close(s[0]);
		head = s[1];
	}
	close(head);
	say("a chain of 400 is gone");
}

static void credentials(void)
{
	int s[2], on = 1, none = 0;
	struct ucred u;
	socklen_t l = sizeof u;
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	TRY(getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &u, &l));
	HOLDS(u.pid == getpid() && u.uid == getuid() && u.gid == getgid() && l == 12);
	MUST(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
	TRY(write(s[0], "a", 1));
	take(s[1], 64, 100, 0, 0);
	IN_CHILD("a child", write(s[0], "b", 1));
	TRY(write(s[0], "c", 1));
	take(s[1], 64, 100, 0, 0);
	take(s[1], 64, 100, 0, 0);
	int p[2];
	MUST(pipe(p));
	TRY(pass(s[0], "both", p, 2, 0));
	take(s[1], 64, 100, 0, 0);
	char control[CMSG_SPACE(12)] = "";
	struct iovec io = { "x", 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_LEN(12) };
	struct cmsghdr *c = (void *)control;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_CREDENTIALS;
	c->cmsg_len = CMSG_LEN(12);
	struct ucred mine = { getpid(), getuid(), getgid() };
	memcpy(CMSG_DATA(c), &mine, 12);
	TRY(sendmsg(s[0], &m, 0));
	take(s[1], 64, 100, 0, 0);
	mine.pid = 999999;
	memcpy(CMSG_DATA(c), &mine, 12);
	TRY(sendmsg(s[0], &m, 0));
	c->cmsg_len = CMSG_LEN(11);
	TRY(sendmsg(s[0], &m, 0));
	c->cmsg_len = 15;
	TRY(sendmsg(s[0], &m, 0));
	c->cmsg_len = 1000;
	TRY(sendmsg(s[0], &m, 0));
	c->cmsg_len = CMSG_LEN(12);
	c->cmsg_type = 77;
	TRY(sendmsg(s[0], &m, 0));
	c->cmsg_level = 5;
	TRY(sendmsg(s[0], &m, 0));
	m.msg_controllen = 1 << 20;
	TRY(sendmsg(s[0], &m, 0));
	c->cmsg_len = 0;
	m.msg_controllen = 0;
	TRY(sendmsg(s[0], &m, 0));
	take(s[1], 64, 100, 0, 0);
	m.msg_control = (void *)-1;
	TRY(sendmsg(s[0], &m, 0));
	take(s[1], 64, 100, 0, 0);
	m.msg_controllen = CMSG_LEN(4);
	TRY(sendmsg(s[0], &m, 0));
	m.msg_controllen = 0;
	m.msg_iovlen = 1025;
	TRY(sendmsg(s[0], &m, 0));
	TRY(recvmsg(s[0], &m, MSG_DONTWAIT));
	TRY(sendmsg(s[0], (void *)8, 0));
	MUST(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &none, sizeof none));
	close(s[0]);
	close(s[1]);
	int t = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
	l = sizeof u;
	TRY(getsockopt(t, SOL_SOCKET, SO_PEERCRED, &u, &l));
	say("of no process: %d %d %d", u.pid, (int)u.uid, (int)u.gid);
	close(t);
}

static void several(void)
{
	int s[2];
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s));
	struct iovec io[3] = { { "one", 3 }, { "three", 5 }, { "", 0 } };
	struct mmsghdr m[3] = { 0 };
	for (int i = 0; i < 3; i++) {
		m[i].msg_hdr.msg_iov = io + i;
		m[i].msg_hdr.msg_iovlen = 1;
	}
	TRY(sendmmsg(s[0], m, 2, 0));
	say("%u %u", m[0].msg_len, m[1].msg_len);
	char b[3][10];
	for (int i = 0; i < 3; i++)
		io[i] = (struct iovec) { b[i], 10 };
	TRY(recvmmsg(s[1], m, 3, MSG_WAITFORONE, 0));
	say("%u %u", m[0].msg_len, m[1].msg_len);
	TRY(recvmmsg(s[1], m, 3, MSG_DONTWAIT, 0));
	TRY(sendmmsg(s[0], (void *)8, 2, 0));
	TRY(sendmmsg(s[0], m, 0, 0));
	struct timespec bad = { 0, -1 };
	TRY(recvmmsg(s[1], m, 3, MSG_DONTWAIT, &bad));
	/* The time that is left, and an error behind the first message, which is the next call's. */
	struct timespec left = { 600, 0 }, none = { 0, 0 };
	TRY(sendmmsg(s[0], m, 2, 0));
	m[1].msg_hdr.msg_iov = (void *)HOLE;
	TRY(recvmmsg(s[1], m, 2, 0, &left));
	HOLDS(left.tv_sec < 600 && left.tv_sec > 0);
	for (int i = 0; i < 2; i++) {
		int error = -1;
		socklen_t n = sizeof error;
		MUST(getsockopt(s[1], SOL_SOCKET, SO_ERROR, &error, &n));
		say("%s", error ? strerrorname_np(error) : "no error");
	}
	TRY(sendmmsg(s[0], m, 1, 0));
	TRY(recvmmsg(s[1], m, 2, 0, 0));
	TRY(recvmmsg(s[1], m, 0, 0, 0));
	m[1].msg_hdr.msg_iov = io + 1;
	TRY(recvmmsg(s[1], m, 2, 0, &none));
	TRY(sendmmsg(s[0], m, 2, 0));
	TRY(recvmmsg(s[1], m, 2, 0, &none));
	HOLDS(none.tv_sec == 0 && none.tv_nsec == 0);
	TRY(recvmmsg(s[1], m, 1, 0, (void *)HOLE));
	TRY(recvmmsg(s[1], m, 2, MSG_DONTWAIT, 0));
	TRY(recvmmsg(s[1], m, 2, MSG_DONTWAIT, 0));
	close(s[0]);
	close(s[1]);
}

static void options(void)
{
	int s = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), v, l = 0;
	static const int shown[] = { SO_TYPE, SO_ERROR, SO_DOMAIN, SO_PROTOCOL, SO_ACCEPTCONN, SO_SNDBUF,
		SO_RCVBUF, SO_REUSEADDR, SO_KEEPALIVE, SO_PASSCRED, SO_RCVLOWAT, SO_SNDLOWAT, SO_BROADCAST, SO_PRIORITY, 12345 };
	for (unsigned i = 0; i < sizeof shown / 4; i++) {
		socklen_t n = sizeof v;
		v = -1;
		int r = getsockopt(s, SOL_SOCKET, shown[i], &v, &n);
		say("option %d: %d, %d of %u bytes, %s", shown[i], r, v, n, r ? strerrorname_np(errno) : "");
	}
	socklen_t n = 2;
	v = -1;
	TRY(getsockopt(s, SOL_SOCKET, SO_TYPE, &v, &n));
	say("%#x of %u", v, n);
	n = -1;
	TRY(getsockopt(s, SOL_SOCKET, SO_TYPE, &v, &n));
	n = 4;
	TRY(getsockopt(s, SOL_SOCKET, SO_TYPE, (void *)8, &n));
	TRY(getsockopt(s, 6, 1, &v, &n));
	TRY(setsockopt(s, 6, 1, &v, 4));
	v = 10000;
	TRY(setsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, 4));
	TRY(getsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, &n));
	say("%d", v);
	v = 1;
	TRY(setsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, 4));
	TRY(getsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, &n));
	say("%d", v);
	v = 1 << 30;
	TRY(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &v, 4));
	TRY(getsockopt(s, SOL_SOCKET, SO_RCVBUF, &v, &n));
	say("%d", v);
	TRY(setsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, 3));
	TRY(setsockopt(s, SOL_SOCKET, SO_SNDBUF, (void *)8, 4));
	TRY(setsockopt(s, SOL_SOCKET, SO_TYPE, &v, 4));
	TRY(setsockopt(s, SOL_SOCKET, 12345, &v, 4));
	TRY(setsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, -1));
	struct timeval t = { 3, 500000 }, bad = { 0, 1000000 };
	TRY(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	TRY(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &bad, sizeof bad));
	TRY(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, 8));
	n = sizeof t;
	memset(&t, 0, sizeof t);
	TRY(getsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, &n));
	say("%ld.%06ld", (long)t.tv_sec, (long)t.tv_usec);
	close(s);
	TRY(getsockopt(0, SOL_SOCKET, SO_TYPE, &v, &n));
}

static void events(void)
{
	struct sockaddr_un x;
	socklen_t l = abstract(&x, "events");
	int s = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), e = MUST(epoll_create1(0));
	MUST(bind(s, (void *)&x, l));
	MUST(listen(s, 5));
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.u32 = 1 }, got[4];
	MUST(epoll_ctl(e, EPOLL_CTL_ADD, s, &ev));
	TRY(epoll_wait(e, got, 4, 0));
	int c = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
	MUST(connect(c, (void *)&x, l));
	TRY(epoll_wait(e, got, 4, 60000));
	TRY(epoll_wait(e, got, 4, 0));
	int d = MUST(accept(s, 0, 0));
	ev = (struct epoll_event) { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u32 = 2 };
	MUST(epoll_ctl(e, EPOLL_CTL_ADD, d, &ev));
	TRY(epoll_wait(e, got, 4, 60000));
	say("%u: %#x", got[0].data.u32, got[0].events);
	MUST(write(c, "x", 1));
	TRY(epoll_wait(e, got, 4, 60000));
	say("%u: %#x", got[0].data.u32, got[0].events);
	MUST(shutdown(c, SHUT_WR));
	TRY(epoll_wait(e, got, 4, 60000));
	say("%u: %#x", got[0].data.u32, got[0].events);
	close(c);
	TRY(epoll_wait(e, got, 4, 60000));
	say("%u: %#x", got[0].data.u32, got[0].events);
	close(s); close(d); close(e);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	names();
	backlog();
	ends();
	datagrams();
	descriptors();
	on_their_way();
	credentials();
	several();
	options();
	events();
	return 0;
}
