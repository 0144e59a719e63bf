/* What TCP and UDP answer over the loopback interface. */
#include "say.h"
#include "blocked.h"
#include "loopback.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/wait.h>
#include "after_delivery.h"

static void say_name(const char *what, int s, int port, int (*call)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_storage a;
	char text[100] = "?";
	socklen_t l = sizeof a;
	/* Called through a pointer, which the macros of after_delivery.h do not see. */
	delivered();
	errno = 0;
	if (call(s, (void *)&a, &l) == -1) {
		say("%s: %s", what, strerrorname_np(errno));
		return;
	}
	struct sockaddr_in *four = (void *)&a;
	struct sockaddr_in6 *six = (void *)&a;
	inet_ntop(a.ss_family, a.ss_family == AF_INET ? (void *)&four->sin_addr : &six->sin6_addr, text, 100);
	int p = ntohs(four->sin_port);
	say("%s: %s of %u bytes, %s port", what, text, l, p == 0 ? "no" : p == port ? "that" : p >= 32768 ? "an ephemeral" : "another");
}

static void say_poll(const char *what, int s)
{
	struct pollfd p = { s, POLLIN | POLLOUT | POLLRDHUP, 0 };
	int r = poll(&p, 1, 0);
	say("%s: poll %d, %#x", what, r, p.revents);
}

static void say_error(const char *what, int s)
{
	int e = -1;
	socklen_t l = sizeof e;
	MUST(getsockopt(s, SOL_SOCKET, SO_ERROR, &e, &l));
	say("%s: error %s", what, e ? strerrorname_np(e) : "none");
}

static void making(void)
{
	TRY(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	TRY(socket(AF_INET, SOCK_DGRAM, IPPROTO_TCP));
	TRY(socket(AF_INET, SOCK_SEQPACKET, 0));
	TRY(socket(AF_INET, 0, 0));
	TRY(socket(AF_INET, SOCK_STREAM, -1));
	TRY(socket(77, SOCK_STREAM, 0));
	TRY(socket(0, SOCK_STREAM, 0));
	TRY(socket(AF_INET, 75, 0));
	TRY(socket(AF_INET, SOCK_STREAM, IPPROTO_ICMP));
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), p[2];
	TRY(socketpair(AF_INET, SOCK_STREAM, 0, p));
	TRY(socketpair(0, SOCK_STREAM, 0, p));
	TRY(socketpair(AF_INET, 75, 0, p));
	TRY(socketpair(AF_INET, SOCK_DGRAM, IPPROTO_UDP, p));
	TRY(socketpair(AF_INET, SOCK_DGRAM, IPPROTO_TCP, p));
	TRY(socketpair(AF_INET, SOCK_STREAM, IPPROTO_ICMP, p));
	int datagrams = MUST(socket(AF_INET, SOCK_DGRAM, 0)), mark;
	TRY(ioctl(s, SIOCATMARK, NULL));
	TRY(ioctl(datagrams, SIOCATMARK, &mark));
	TRY(ioctl(datagrams, SIOCGIFFLAGS, NULL));
	close(datagrams);
	struct sockaddr_in a = v4("127.0.0.1", 0);
	say_name("fresh", s, 0, getsockname);
	say_name("fresh", s, 0, getpeername);
	say_poll("fresh", s);
	TRY(bind(s, (void *)&a, 8));
	a.sin_family = AF_INET6;
	TRY(bind(s, (void *)&a, sizeof a));
	struct sockaddr_in far = v4("10.1.2.3", 0);
	TRY(bind(s, (void *)&far, sizeof far));
	TRY(accept(s, 0, 0));
	TRY(shutdown(s, SHUT_RDWR));
	char b[4];
	TRY(recv(s, b, 4, 0));
	TRY(send(s, b, 4, MSG_NOSIGNAL));
	a = v4("127.0.0.1", 0);
	TRY(bind(s, (void *)&a, sizeof a));
	TRY(bind(s, (void *)&a, sizeof a));
	say_name("bound", s, 0, getsockname);
	a = v4("127.0.0.1", port_of(s));
	int t = MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
	TRY(bind(t, (void *)&a, sizeof a));
	TRY(connect(t, (void *)&a, sizeof a));
	struct sockaddr_in two = v4("127.0.0.2", ntohs(a.sin_port));
	TRY(bind(t, (void *)&two, sizeof two));
	close(t);
	t = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(setsockopt(t, SOL_SOCKET, SO_REUSEADDR, &on, 4));
	TRY(bind(t, (void *)&a, sizeof a));
	MUST(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, 4));
	TRY(bind(t, (void *)&a, sizeof a));
	TRY(listen(s, 1));
	TRY(listen(t, 1));
	close(s);
	TRY(listen(t, 1));
	close(t);
	int d = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	TRY(listen(d, 1));
	TRY(accept(d, 0, 0));
	close(d);
}

static void refused(void)
{
	signal(SIGPIPE, SIG_IGN);
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in a = v4("127.0.0.1", 1), far = v4("8.8.8.8", 53);
	struct sockaddr_in6 far6 = v6("2001:db8::1", 53);
	TRY(connect(s, (void *)&a, sizeof a));
	TRY(connect(s, (void *)&far, sizeof far));
	int six = MUST(socket(AF_INET6, SOCK_STREAM, 0));
	TRY(connect(six, (void *)&far6, sizeof far6));
	TRY(connect(six, (void *)&a, sizeof a));
	close(six);
	close(s);
	s = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	TRY(connect(s, (void *)&a, sizeof a));
	say_poll("refused", s);
	say_error("refused", s);
	say_error("again", s);
	TRY(connect(s, (void *)&a, sizeof a));
	close(s);
}

static void connections(int family)
{
	struct sockaddr_in a4 = v4("127.0.0.1", 0);
	struct sockaddr_in6 a6 = v6("::1", 0);
	struct sockaddr *a = family == AF_INET ? (void *)&a4 : (void *)&a6;
	socklen_t l = family == AF_INET ? sizeof a4 : sizeof a6;
	char b[100];
	int s = MUST(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
	MUST(bind(s, a, l));
	TRY(listen(s, 5));
	int port = port_of(s);
	a4.sin_port = a6.sin6_port = htons(port);
	say_poll("listener", s);
	TRY(accept(s, 0, 0));
	TRY(connect(s, a, l));
	TRY(write(s, "x", 1));
	TRY(read(s, b, 1));
	int c = MUST(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
	TRY(connect(c, a, l));
	say_poll("connected", c);
	say_error("connected", c);
	TRY(connect(c, a, l));
	TRY(connect(c, a, l));
	say_poll("listener", s);
	int d = MUST(accept4(s, 0, 0, SOCK_NONBLOCK));
	say_name("server", d, port, getsockname);
	say_name("server", d, port, getpeername);
	say_name("client", c, port, getsockname);
	say_name("client", c, port, getpeername);
	TRY(write(c, "hello", 5));
	say_poll("readable", d);
	TRY(recv(d, b, 3, MSG_PEEK));
	TRY(recv(d, b, 100, 0));
	TRY(recv(d, b, 100, 0));
	socklen_t fl = sizeof a6;
	TRY(write(d, "ab", 2));
	TRY(recvfrom(c, b, 100, 0, (void *)b, &fl));
	say("source of %u bytes", fl);
	/* There is no source to write, so the place does not matter; its length does. */
	fl = sizeof a6;
	TRY(write(d, "cd", 2));
	TRY(recvfrom(c, b, 100, 0, (void *)-1, &fl));
	fl = -1;
	TRY(write(d, "ef", 2));
	TRY(recvfrom(c, b, 100, 0, (void *)b, &fl));
	TRY(recv(c, b, 100, MSG_DONTWAIT));
	TRY(recv(c, b, 100, MSG_ERRQUEUE));
	TRY(sendto(c, "to", 2, 0, a, l));
	TRY(recv(d, b, 100, MSG_TRUNC));
	TRY(shutdown(c, SHUT_WR));
	say_poll("half closed", d);
	say_poll("half closed here", c);
	TRY(read(d, b, 100));
	TRY(write(c, "x", 1));
	TRY(write(d, "still", 5));
	TRY(read(c, b, 100));
	TRY(shutdown(d, SHUT_WR));
	say_poll("closed", c);
	say_poll("closed", d);
	TRY(read(c, b, 100));
	close(c);
	close(d);
	/* A peer that is gone. */
	c = MUST(socket(family, SOCK_STREAM, 0));
	MUST(connect(c, a, l));
	d = MUST(accept(s, 0, 0));
	close(d);
	say_poll("peer gone", c);
	TRY(write(c, "x", 1));
	say_poll("after a write", c);
	TRY(write(c, "x", 1));
	TRY(read(c, b, 1));
	close(c);
	/* With bytes that it had not read. */
	c = MUST(socket(family, SOCK_STREAM, 0));
	MUST(connect(c, a, l));
	d = MUST(accept(s, 0, 0));
	MUST(write(c, "unread", 6));
	MUST(write(d, "for you", 7));
	close(d);
	say_poll("reset", c);
	TRY(read(c, b, 100));
	TRY(read(c, b, 100));
	TRY(read(c, b, 100));
	TRY(write(c, "x", 1));
	TRY(shutdown(c, SHUT_WR));
	close(c);
	/* By its wish. */
	c = MUST(socket(family, SOCK_STREAM, 0));
	MUST(connect(c, a, l));
	d = MUST(accept(s, 0, 0));
	struct linger hard = { 1, 0 };
	MUST(setsockopt(d, SOL_SOCKET, SO_LINGER, &hard, sizeof hard));
	close(d);
	say_poll("aborted", c);
	say_error("aborted", c);
	TRY(read(c, b, 100));
	close(c);
	/* Of a listener that goes. */
	c = MUST(socket(family, SOCK_STREAM, 0));
	MUST(connect(c, a, l));
	close(s);
	say_poll("abandoned", c);
	TRY(read(c, b, 1));
	close(c);
	c = MUST(socket(family, SOCK_STREAM, 0));
	TRY(connect(c, a, l));
	close(c);
}

static void much(void)
{
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in a = v4("127.0.0.1", 0);
	MUST(bind(s, (void *)&a, sizeof a));
	MUST(listen(s, 5));
	a.sin_port = htons(port_of(s));
	MUST(connect(c, (void *)&a, sizeof a));
	int d = MUST(accept(s, 0, 0));
	static char data[100000], in[100000];
	if (fork() == 0) {
		for (int round = 0; round < 100; round++) {
			memset(data, round, sizeof data);
			for (size_t done = 0; done < sizeof data;)
				done += MUST(write(c, data + done, sizeof data - done));
		}
		_exit(0);
	}
	close(c);
	size_t total = 0, wrong = 0;
	ssize_t n;
	while ((n = MUST(read(d, in, 77777))) > 0)
		for (ssize_t i = 0; i < n; i++, total++)
			wrong += in[i] != (char)(total / sizeof data);
	wait(NULL);
	say("%zu bytes came, %zu of them wrong", total, wrong);
	close(d);
	/* Full, and not any more. */
	c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(c, (void *)&a, sizeof a));
	d = MUST(accept(s, 0, 0));
	MUST(fcntl(c, F_SETFL, O_NONBLOCK));
	MUST(fcntl(d, F_SETFL, O_NONBLOCK));
	size_t sent = 0, got = 0;
	while ((n = write(c, data, sizeof data)) > 0)
		sent += n;
	say("full with %s", strerrorname_np(errno));
	struct pollfd p = { c, POLLOUT, 0 };
	TRY(poll(&p, 1, 0));
	for (int i = 0; i < 300000 && got < sent; i++) {
		while ((n = read(d, in, sizeof in)) > 0)
			got += n;
		sleep_ms(1);
	}
	HOLDS(got == sent && sent >= 100000);
	TRY(poll(&p, 1, 600000));
	close(c); close(d); close(s);
}

static void datagrams(int family)
{
	struct sockaddr_in a4 = v4("127.0.0.1", 0);
	struct sockaddr_in6 a6 = v6("::1", 0);
	struct sockaddr *a = family == AF_INET ? (void *)&a4 : (void *)&a6;
	socklen_t l = family == AF_INET ? sizeof a4 : sizeof a6, fl;
	char b[100], from[64];
	int x = MUST(socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0)), y = MUST(socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	say_poll("fresh", x);
	TRY(send(x, "a", 1, 0));
	TRY(recv(x, b, 1, 0));
	close(x);
	x = MUST(socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	MUST(bind(x, a, l));
	int port = port_of(x);
	TRY(sendto(y, "a", 1, 0, a, l));
	a4.sin_port = a6.sin6_port = htons(port);
	TRY(sendto(y, "first", 5, 0, a, l));
	TRY(sendto(y, "", 0, 0, a, l));
	say_poll("readable", x);
	int n;
	TRY(ioctl(x, FIONREAD, &n));
	say("%d bytes", n);
	fl = sizeof from;
	TRY(recvfrom(x, b, 2, MSG_TRUNC, (void *)from, &fl));
	say("source of %u bytes", fl);
	TRY(recv(x, b, 2, 0));
	TRY(recv(x, b, 2, 0));
	TRY(sendto(x, "back", 4, 0, (void *)from, fl));
	TRY(recv(y, b, 100, 0));
	TRY(connect(y, a, l));
	say_name("connected", y, port, getpeername);
	say_name("connected", y, port, getsockname);
	TRY(send(y, "c", 1, 0));
	TRY(recv(x, b, 100, 0));
	int z = MUST(socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	TRY(sendto(z, "stranger", 8, 0, (void *)from, fl));
	TRY(recv(y, b, 100, 0));
	static char large[70000];
	TRY(sendto(z, large, 65536, 0, a, l));
	TRY(sendto(z, large, 65000, 0, a, l));
	TRY(recv(x, large, 70000, 0));
	close(x);
	TRY(send(y, "x", 1, 0));
	say_poll("peer closed", y);
	TRY(send(y, "x", 1, 0));
	TRY(send(y, "x", 1, 0));
	TRY(recv(y, b, 1, 0));
	TRY(recv(y, b, 1, 0));
	struct sockaddr none = { AF_UNSPEC };
	TRY(connect(y, &none, sizeof none));
	say_name("disconnected", y, port, getpeername);
	TRY(send(y, "x", 1, 0));
	TRY(shutdown(y, SHUT_WR));
	struct sockaddr_in far = v4("8.8.8.8", 53);
	struct sockaddr_in6 far6 = v6("2001:db8::1", 53);
	TRY(connect(y, family == AF_INET ? (void *)&far : (void *)&far6, l));
	close(y);
	close(z);
}

static void both_versions(void)
{
	int on = 1, off = 0, v = -1;
	socklen_t l = sizeof v;
	int s = MUST(socket(AF_INET6, SOCK_STREAM, 0));
	TRY(getsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &v, &l));
	say("%d", v);
	struct sockaddr_in6 any = v6("::", 0), mapped = v6("::ffff:127.0.0.1", 0);
	MUST(bind(s, (void *)&any, sizeof any));
	TRY(setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, 4));
	MUST(listen(s, 5));
	int port = port_of(s);
	struct sockaddr_in a = v4("127.0.0.1", port), any4 = v4("0.0.0.0", port);
	int c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	TRY(bind(c, (void *)&any4, sizeof any4));
	TRY(connect(c, (void *)&a, sizeof a));
	int d = MUST(accept(s, 0, 0));
	say_name("server", d, port, getpeername);
	say_name("server", d, port, getsockname);
	say_name("client", c, port, getpeername);
	close(c); close(d);
	c = MUST(socket(AF_INET6, SOCK_STREAM, 0));
	mapped.sin6_port = htons(port);
	TRY(connect(c, (void *)&mapped, sizeof mapped));
	say_name("mapped", c, port, getsockname);
	close(c);
	c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	TRY(connect(c, (void *)&any4, sizeof any4));
	say_name("to any", c, port, getpeername);
	close(c);
	c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in other = v4("127.3.2.1", port);
	TRY(connect(c, (void *)&other, sizeof other));
	say_name("to another", c, port, getpeername);
	say_name("to another", c, port, getsockname);
	close(c);
	close(s);
	s = MUST(socket(AF_INET6, SOCK_STREAM, 0));
	MUST(setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, 4));
	any.sin6_port = 0;
	MUST(bind(s, (void *)&any, sizeof any));
	MUST(listen(s, 5));
	a = v4("127.0.0.1", port_of(s));
	c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	TRY(connect(c, (void *)&a, sizeof a));
	any4 = v4("0.0.0.0", port_of(s));
	TRY(bind(c, (void *)&any4, sizeof any4));
	close(c);
	close(s);
	/* Two that share a port. */
	int p = MUST(socket(AF_INET, SOCK_DGRAM, 0)), q = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	MUST(setsockopt(p, SOL_SOCKET, SO_REUSEPORT, &on, 4));
	a = v4("127.0.0.1", 0);
	MUST(bind(p, (void *)&a, sizeof a));
	a.sin_port = htons(port_of(p));
	TRY(bind(q, (void *)&a, sizeof a));
	MUST(setsockopt(q, SOL_SOCKET, SO_REUSEPORT, &on, 4));
	TRY(bind(q, (void *)&a, sizeof a));
	close(p); close(q);
}

static void options(void)
{
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), v;
	static const int of_socket[] = { SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_REUSEADDR, SO_KEEPALIVE, SO_ACCEPTCONN, SO_BROADCAST, SO_OOBINLINE };
	static const int of_tcp[] = { TCP_NODELAY, TCP_CORK, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_SYNCNT, TCP_USER_TIMEOUT, TCP_LINGER2, 99 };
	for (unsigned i = 0; i < sizeof of_socket / 4; i++) {
		socklen_t l = sizeof v;
		v = -1;
		int r = getsockopt(s, SOL_SOCKET, of_socket[i], &v, &l);
		say("option %d: %d, %d of %u bytes", of_socket[i], r, v, l);
	}
	for (unsigned i = 0; i < sizeof of_tcp / 4; i++) {
		socklen_t l = sizeof v;
		v = -1;
		int r = getsockopt(s, IPPROTO_TCP, of_tcp[i], &v, &l);
		say("option %d: %d, %d, %s", of_tcp[i], r, v, r ? strerrorname_np(errno) : "");
	}
	int on = 1, zero = 0, large = 40000;
	TRY(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, 4));
	TRY(setsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, &zero, 4));
	TRY(setsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, &large, 4));
	TRY(setsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, &on, 4));
	TRY(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, 3));
	TRY(setsockopt(s, SOL_SOCKET, SO_PASSCRED, &on, 2));
	TRY(setsockopt(s, IPPROTO_IP, IP_TOS, &on, 4));
	struct linger g = { 1, 5 }, h = { 0 };
	socklen_t l = sizeof h;
	TRY(setsockopt(s, SOL_SOCKET, SO_LINGER, &g, sizeof g));
	TRY(setsockopt(s, SOL_SOCKET, SO_LINGER, &g, 4));
	TRY(getsockopt(s, SOL_SOCKET, SO_LINGER, &h, &l));
	say("%d %d", h.l_onoff, h.l_linger);
	TRY(setsockopt(s, 4321, 1, &on, 4));
	close(s);
}

/* Sends by `from` to `port` of `to`, with one control message, or none. */
static void send_with(int from, const struct sockaddr *to, socklen_t l, int level, int type, const void *data, size_t n)
{
	char control[256] __attribute__((aligned(8))) = { 0 };
	struct iovec v = { "head", 4 };
	struct msghdr m = { .msg_name = (void *)to, .msg_namelen = l, .msg_iov = &v, .msg_iovlen = 1 };
	if (data) {
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(n);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = level;
		c->cmsg_type = type;
		c->cmsg_len = CMSG_LEN(n);
		memcpy(CMSG_DATA(c), data, n);
	}
	errno = 0;
	int r = sendmsg(from, &m, 0);
	say("sent with %d/%d of %zu bytes: %d %s", level, type, data ? n : 0, r, r < 0 ? strerrorname_np(errno) : "");
}

/* Receives with so much room for control messages and shows them; a port is shown as whether it is `port`. */
static void show_head(int s, size_t room, int port, int flags)
{
	char control[512] __attribute__((aligned(8))), b[10], line[200];
	struct iovec v = { b, sizeof b };
	struct sockaddr_in6 name = { 0 };
	struct msghdr m = { .msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &v, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = room };
	errno = 0;
	int r = recvmsg(s, &m, MSG_DONTWAIT | flags);
	if (r < 0) {
		say("nothing received: %s", strerrorname_np(errno));
		return;
	}
	char from[64] = "";
	inet_ntop(name.sin6_family, name.sin6_family == AF_INET ? (void *)((char *)&name + 4) : &name.sin6_addr, from, sizeof from);
	say("received %d from %s, flags %#x, control %zu", r, from, m.msg_flags, m.msg_controllen);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		unsigned char *data = CMSG_DATA(c);
		size_t n = c->cmsg_len - CMSG_LEN(0);
		if (n >= 16 && port && ntohs(*(unsigned short *)(data + 2)) == port)
			data[2] = data[3] = 0xee;
		int at = 0;
		line[0] = 0;
		for (size_t i = 0; i < n && at < 150; i++)
			at += sprintf(line + at, "%02x", data[i]);
		say("  %d/%d, %zu bytes: %s", c->cmsg_level, c->cmsg_type, n, line);
	}
}

static void ask(int s, int level, int option, int on)
{
	errno = 0;
	int r = setsockopt(s, level, option, &on, sizeof on), now = -1;
	const char *error = r ? strerrorname_np(errno) : "";
	socklen_t l = sizeof now;
	errno = 0;
	int q = getsockopt(s, level, option, &now, &l);
	say("option %d/%d to %d: %d %s, then %d, %d %s", level, option, on, r, error, q, now, q ? strerrorname_np(errno) : "");
}

static void heads4(int protocol)
{
	struct sockaddr_in a = v4("127.0.0.1", 0), other = v4("127.4.5.6", 0);
	int x = MUST(socket(AF_INET, SOCK_DGRAM, protocol)), y = MUST(socket(AF_INET, SOCK_DGRAM, protocol));
	struct sockaddr_in any = v4("0.0.0.0", 0);
	MUST(bind(x, (void *)&any, sizeof any));
	int port = port_of(x), v;
	a.sin_port = other.sin_port = htons(port);
	send_with(y, (void *)&a, sizeof a, 0, 0, NULL, 0);
	show_head(x, 512, port, 0);
	send_with(y, (void *)&a, sizeof a, 0, 0, NULL, 0);
	static const int asked[] = { IP_PKTINFO, IP_RECVTTL, IP_RECVTOS, IP_RECVORIGDSTADDR };
	for (unsigned i = 0; i < sizeof asked / 4; i++)
		ask(x, IPPROTO_IP, asked[i], 1);
	show_head(x, 512, port, 0);
	send_with(y, (void *)&other, sizeof other, 0, 0, NULL, 0);
	show_head(x, 512, port, MSG_PEEK);
	static const int rooms[] = { 512, 96, 77, 76, 60, 30, 17, 16, 15, 0 };
	for (unsigned i = 0; i < sizeof rooms / 4; i++) {
		show_head(x, rooms[i], port, 0);
		send_with(y, (void *)&other, sizeof other, 0, 0, NULL, 0);
	}
	show_head(x, 512, port, 0);
	ask(y, IPPROTO_IP, IP_TTL, 7);
	ask(y, IPPROTO_IP, IP_TTL, 0);
	ask(y, IPPROTO_IP, IP_TTL, 256);
	ask(y, IPPROTO_IP, IP_TOS, 0x1b);
	ask(y, IPPROTO_IP, IP_TOS, 0x110);
	ask(y, SOL_SOCKET, SO_PRIORITY, 5);
	ask(y, IPPROTO_IP, IP_TOS, 0x1b);
	socklen_t l = sizeof v;
	TRY(getsockopt(y, SOL_SOCKET, SO_PRIORITY, &v, &l));
	say("priority %d", v);
	send_with(y, (void *)&a, sizeof a, 0, 0, NULL, 0);
	show_head(x, 512, port, 0);
	static const int ttls[] = { 3, 255, 0, 256, -1 };
	for (unsigned i = 0; i < sizeof ttls / 4; i++) {
		send_with(y, (void *)&a, sizeof a, IPPROTO_IP, IP_TTL, &ttls[i], 4);
		show_head(x, 512, port, 0);
	}
	static const int services[] = { 0, 255, 256, -1 };
	for (unsigned i = 0; i < sizeof services / 4; i++) {
		send_with(y, (void *)&a, sizeof a, IPPROTO_IP, IP_TOS, &services[i], 4);
		show_head(x, 512, port, 0);
	}
	send_with(y, (void *)&a, sizeof a, IPPROTO_IP, IP_TOS, "!", 1);
	show_head(x, 512, port, 0);
	send_with(y, (void *)&a, sizeof a, IPPROTO_IP, IP_TOS, "!!", 2);
	send_with(y, (void *)&a, sizeof a, IPPROTO_IP, IP_TTL, "!", 1);
	static const char *const sources[] = { "127.9.9.9", "0.0.0.0", "10.1.2.3", "224.0.0.1", "0.1.1.1", "255.255.255.255" };
	for (unsigned i = 0; i < sizeof sources / sizeof *sources; i++) {
		struct in_pktinfo p = { 0 };
		inet_pton(AF_INET, sources[i], &p.ipi_spec_dst);
		say("from %s", sources[i]);
		send_with(y, (void *)&a, sizeof a, IPPROTO_IP, IP_PKTINFO, &p, sizeof p);
		show_head(x, 512, port, 0);
	}
	static const int interfaces[] = { 1, 99, -1 };
	for (unsigned i = 0; i < sizeof interfaces / 4; i++) {
		struct in_pktinfo p = { .ipi_ifindex = interfaces[i] };
		send_with(y, (void *)&a, sizeof a, IPPROTO_IP, IP_PKTINFO, &p, sizeof p);
		show_head(x, 512, port, 0);
	}
	struct in_pktinfo p[2] = { 0 };
	send_with(y, (void *)&a, sizeof a, IPPROTO_IP, IP_PKTINFO, p, sizeof *p - 1);
	send_with(y, (void *)&a, sizeof a, IPPROTO_IP, IP_PKTINFO, p, sizeof *p + 1);
	send_with(y, (void *)&a, sizeof a, IPPROTO_IP, 99, &v, 4);
	send_with(y, (void *)&a, sizeof a, IPPROTO_UDP, 99, &v, 4);
	send_with(y, (void *)&a, sizeof a, IPPROTO_IPV6, IPV6_HOPLIMIT, &v, 4);
	show_head(x, 512, port, 0);
	send_with(y, (void *)&a, sizeof a, 4321, 1, &v, 4);
	show_head(x, 512, port, 0);
	send_with(y, (void *)&a, sizeof a, SOL_SOCKET, 99, &v, 4);
	send_with(y, (void *)&a, sizeof a, SOL_SOCKET, SCM_RIGHTS, &v, 4);
	show_head(x, 512, port, 0);
	send_with(y, (void *)&a, sizeof a, SOL_SOCKET, SCM_CREDENTIALS, &v, 4);
	show_head(x, 512, port, 0);
	struct iovec part = { "head", 4 };
	char short_control[40] __attribute__((aligned(8))) = { 15 };
	struct msghdr m = { &a, sizeof a, &part, 1, short_control, 40, 0 };
	TRY(sendmsg(y, &m, 0));
	short_control[0] = 41;
	TRY(sendmsg(y, &m, 0));
	m.msg_controllen = 15;
	TRY(sendmsg(y, &m, 0));
	show_head(x, 512, port, 0);
	/* Connected, with the other socket's options. */
	MUST(connect(y, (void *)&a, sizeof a));
	int hops = 9;
	send_with(y, NULL, 0, IPPROTO_IP, IP_TTL, &hops, 4);
	show_head(x, 512, port, 0);
	for (unsigned i = 0; i < sizeof asked / 4; i++)
		ask(x, IPPROTO_IP, asked[i], 0);
	send_with(y, NULL, 0, 0, 0, NULL, 0);
	show_head(x, 512, port, 0);
	close(x);
	close(y);
}

static void heads6(int protocol)
{
	struct sockaddr_in6 a = v6("::1", 0), mapped = v6("::ffff:127.0.0.1", 0), any = v6("::", 0);
	int x = MUST(socket(AF_INET6, SOCK_DGRAM, protocol)), y = MUST(socket(AF_INET6, SOCK_DGRAM, protocol)), v = 0;
	MUST(bind(x, (void *)&any, sizeof any));
	int port = port_of(x);
	a.sin6_port = mapped.sin6_port = htons(port);
	struct sockaddr_in6 *const to[] = { &a, &mapped };
	static const struct told {
		int level, option;
	} asked[] = {
		{ IPPROTO_IPV6, IPV6_RECVPKTINFO }, { IPPROTO_IPV6, IPV6_RECVHOPLIMIT }, { IPPROTO_IPV6, IPV6_RECVTCLASS },
		{ IPPROTO_IPV6, IPV6_RECVORIGDSTADDR }, { IPPROTO_IPV6, IPV6_2292PKTINFO }, { IPPROTO_IPV6, IPV6_2292HOPLIMIT },
		{ IPPROTO_IP, IP_PKTINFO }, { IPPROTO_IP, IP_RECVTTL }, { IPPROTO_IP, IP_RECVTOS }, { IPPROTO_IP, IP_RECVORIGDSTADDR },
	};
	for (int i = 0; i < 2; i++)
		send_with(y, (void *)to[i], sizeof a, 0, 0, NULL, 0);
	for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++)
		ask(x, asked[i].level, asked[i].option, 1);
	for (int i = 0; i < 2; i++)
		show_head(x, 512, port, 0);
	static const int rooms[] = { 512, 60, 50, 36, 15 };
	for (unsigned i = 0; i < sizeof rooms / 4; i++) {
		send_with(y, (void *)&a, sizeof a, 0, 0, NULL, 0);
		show_head(x, rooms[i], port, 0);
	}
	static const int numbers[] = { -2, -1, 0, 64, 7, 255, 256 };
	for (unsigned i = 0; i < sizeof numbers / 4; i++) {
		ask(y, IPPROTO_IPV6, IPV6_UNICAST_HOPS, numbers[i]);
		ask(y, IPPROTO_IPV6, IPV6_TCLASS, numbers[i]);
		if (numbers[i] == 7) {
			send_with(y, (void *)&a, sizeof a, 0, 0, NULL, 0);
			show_head(x, 512, port, 0);
			send_with(y, (void *)&mapped, sizeof a, 0, 0, NULL, 0);
			show_head(x, 512, port, 0);
		}
	}
	ask(y, IPPROTO_IP, IP_TTL, 5);
	ask(y, IPPROTO_IP, IP_TOS, 0x20);
	ask(y, IPPROTO_IPV6, IPV6_MTU_DISCOVER, 2);
	ask(y, IPPROTO_IPV6, IPV6_MTU_DISCOVER, 6);
	ask(y, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
	TRY(setsockopt(y, IPPROTO_IPV6, IPV6_TCLASS, &v, 3));
	TRY(setsockopt(y, IPPROTO_IPV6, IPV6_RECVTCLASS, &v, 3));
	for (unsigned i = 0; i < sizeof numbers / 4; i++) {
		say("with %d", numbers[i]);
		send_with(y, (void *)&a, sizeof a, IPPROTO_IPV6, IPV6_HOPLIMIT, &numbers[i], 4);
		show_head(x, 512, port, 0);
		send_with(y, (void *)&a, sizeof a, IPPROTO_IPV6, IPV6_TCLASS, &numbers[i], 4);
		show_head(x, 512, port, 0);
		send_with(y, (void *)&a, sizeof a, IPPROTO_IPV6, IPV6_DONTFRAG, &numbers[i], 4);
		show_head(x, 512, port, 0);
		send_with(y, (void *)&mapped, sizeof a, IPPROTO_IP, IP_TTL, &numbers[i], 4);
		show_head(x, 512, port, 0);
	}
	static const int kinds[] = { IPV6_HOPLIMIT, IPV6_2292HOPLIMIT, IPV6_TCLASS, 99 };
	for (unsigned i = 0; i < sizeof kinds / 4; i++)
		for (int n = 3; n <= 5; n++)
			send_with(y, (void *)&a, sizeof a, IPPROTO_IPV6, kinds[i], &numbers[3], n);
	while (recv(x, &v, 4, MSG_DONTWAIT) > 0)
		;
	static const char *const sources[] = { "::1", "::", "2001:db8::1", "fe80::1", "::ffff:127.0.0.5", "::ffff:0.0.0.0" };
	for (unsigned i = 0; i < sizeof sources / sizeof *sources; i++) {
		struct in6_pktinfo p = { 0 };
		inet_pton(AF_INET6, sources[i], &p.ipi6_addr);
		say("from %s", sources[i]);
		for (int j = 0; j < 2; j++) {
			send_with(y, (void *)to[j], sizeof a, IPPROTO_IPV6, IPV6_PKTINFO, &p, sizeof p);
			show_head(x, 512, port, 0);
		}
	}
	static const int interfaces[] = { 1, 99, -1 };
	for (unsigned i = 0; i < sizeof interfaces / 4; i++) {
		struct in6_pktinfo p = { .ipi6_ifindex = interfaces[i] };
		send_with(y, (void *)&a, sizeof a, IPPROTO_IPV6, IPV6_PKTINFO, &p, sizeof p);
		show_head(x, 512, port, 0);
	}
	struct in6_pktinfo p[2] = { 0 };
	send_with(y, (void *)&a, sizeof a, IPPROTO_IPV6, IPV6_PKTINFO, p, sizeof *p - 1);
	send_with(y, (void *)&a, sizeof a, IPPROTO_IPV6, IPV6_2292PKTINFO, p, sizeof *p);
	show_head(x, 512, port, 0);
	v = 999;
	send_with(y, (void *)&a, sizeof a, IPPROTO_IP, IP_TTL, &v, 4);
	show_head(x, 512, port, 0);
	send_with(y, (void *)&mapped, sizeof a, IPPROTO_IPV6, IPV6_HOPLIMIT, &v, 4);
	show_head(x, 512, port, 0);
	close(x);
	close(y);
}

/* What of a message is checked. */
static void coverage(void)
{
	enum { SEND = 10, RECEIVE = 11 };
	struct sockaddr_in a = v4("127.0.0.1", 0);
	int x = MUST(socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE)), y = MUST(socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE));
	int u = MUST(socket(AF_INET, SOCK_DGRAM, 0)), v;
	socklen_t l = sizeof v;
	MUST(bind(x, (void *)&a, sizeof a));
	a.sin_port = htons(port_of(x));
	/* The ports of the protocols are apart. */
	TRY(bind(u, (void *)&a, sizeof a));
	TRY(getsockopt(x, SOL_SOCKET, SO_PROTOCOL, &v, &l));
	say("protocol %d", v);
	TRY(sendto(u, "apart", 5, 0, (void *)&a, sizeof a));
	show_head(x, 0, 0, 0);
	show_head(u, 0, 0, 0);
	ask(u, IPPROTO_UDPLITE, SEND, 20);
	static const int all[] = { 0, 1, 8, 9, 12, 20, 70000 };
	for (unsigned i = 0; i < sizeof all / 4; i++) {
		ask(y, IPPROTO_UDPLITE, SEND, all[i]);
		send_with(y, (void *)&a, sizeof a, 0, 0, NULL, 0);
		show_head(x, 0, 0, 0);
	}
	static const int least[] = { 9, 10, 0 };
	for (unsigned i = 0; i < sizeof least / 4; i++) {
		ask(x, IPPROTO_UDPLITE, RECEIVE, least[i]);
		for (unsigned j = 0; j < sizeof all / 4; j++) {
			MUST(setsockopt(y, IPPROTO_UDPLITE, SEND, &all[j], 4));
			send_with(y, (void *)&a, sizeof a, 0, 0, NULL, 0);
			show_head(x, 0, 0, 0);
		}
	}
	TRY(socket(AF_INET, SOCK_STREAM, IPPROTO_UDPLITE));
	close(x); close(y); close(u);
}

/* Streams have no packets to tell of, and their congestion bits are their own. */
static void heads_of_streams(void)
{
	struct sockaddr_in a = v4("127.0.0.1", 0);
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), c = MUST(socket(AF_INET, SOCK_STREAM, 0)), v = 1;
	MUST(bind(s, (void *)&a, sizeof a));
	MUST(listen(s, 1));
	a.sin_port = htons(port_of(s));
	MUST(connect(c, (void *)&a, sizeof a));
	int d = MUST(accept(s, 0, 0));
	ask(d, IPPROTO_IP, IP_PKTINFO, 1);
	ask(d, IPPROTO_IP, IP_TOS, 0x13);
	ask(d, IPPROTO_IP, IP_MTU_DISCOVER, 0);
	ask(d, IPPROTO_IP, IP_MTU_DISCOVER, 6);
	ask(d, IPPROTO_IPV6, IPV6_TCLASS, 1);
	send_with(c, NULL, 0, IPPROTO_IP, IP_TTL, &v, 4);
	show_head(d, 512, 0, 0);
	send_with(c, NULL, 0, IPPROTO_IP, 99, &v, 4);
	show_head(d, 512, 0, 0);
	send_with(c, NULL, 0, SOL_SOCKET, 99, &v, 4);
	send_with(c, NULL, 0, SOL_SOCKET, SCM_RIGHTS, &v, 4);
	show_head(d, 512, 0, 0);
	static const int bytes[] = { 0, 1, 2, 3, 4, 5 };
	for (unsigned i = 0; i < sizeof bytes / 4; i++) {
		socklen_t l = bytes[i];
		v = -1;
		TRY(getsockopt(d, IPPROTO_IP, IP_TTL, &v, &l));
		say("%u bytes, %#x", l, v);
	}
	unsigned char byte = 33;
	TRY(setsockopt(d, IPPROTO_IP, IP_TTL, &byte, 1));
	TRY(setsockopt(d, IPPROTO_IP, IP_TTL, &byte, 0));
	TRY(setsockopt(d, IPPROTO_IP, IP_TOS, &byte, 0));
	ask(d, IPPROTO_IP, 4321, 1);
	int six = MUST(socket(AF_INET6, SOCK_STREAM, 0));
	ask(six, IPPROTO_IPV6, IPV6_TCLASS, 0x13);
	ask(six, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	ask(six, IPPROTO_IPV6, 4321, 1);
	close(six); close(s); close(c); close(d);
}

/* What a connection has of its listener. */
static void inherited(void)
{
	static const struct {
		int level, option, value;
	} all[] = {
		{ SOL_SOCKET, SO_REUSEADDR, 1 }, { SOL_SOCKET, SO_KEEPALIVE, 1 }, { SOL_SOCKET, SO_BROADCAST, 1 }, { SOL_SOCKET, SO_DONTROUTE, 1 },
		{ SOL_SOCKET, SO_OOBINLINE, 1 }, { SOL_SOCKET, SO_PRIORITY, 3 }, { SOL_SOCKET, SO_RCVLOWAT, 7 }, { SOL_SOCKET, SO_RCVBUF, 9000 },
		{ SOL_SOCKET, SO_SNDBUF, 9000 }, { IPPROTO_TCP, TCP_NODELAY, 1 }, { IPPROTO_TCP, TCP_QUICKACK, 0 }, { IPPROTO_TCP, TCP_KEEPIDLE, 9 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 9 }, { IPPROTO_TCP, TCP_KEEPCNT, 9 }, { IPPROTO_TCP, TCP_SYNCNT, 9 }, { IPPROTO_TCP, TCP_USER_TIMEOUT, 9 },
		{ IPPROTO_TCP, TCP_LINGER2, 9 }, { IPPROTO_IP, IP_TTL, 9 }, { IPPROTO_IP, IP_TOS, 0x10 }, { IPPROTO_IP, IP_MTU_DISCOVER, 3 },
		{ IPPROTO_IP, IP_RECVTTL, 1 }, { IPPROTO_IPV6, IPV6_UNICAST_HOPS, 9 }, { IPPROTO_IPV6, IPV6_TCLASS, 0x10 },
		{ IPPROTO_IPV6, IPV6_RECVTCLASS, 1 }, { IPPROTO_IPV6, IPV6_DONTFRAG, 1 },
	};
	struct sockaddr_in6 a = v6("::1", 0);
	int s = MUST(socket(AF_INET6, SOCK_STREAM, 0)), c = MUST(socket(AF_INET6, SOCK_STREAM, 0));
	MUST(bind(s, (void *)&a, sizeof a));
	MUST(listen(s, 1));
	a.sin6_port = htons(port_of(s));
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		MUST(setsockopt(s, all[i].level, all[i].option, &all[i].value, 4));
	struct timeval second = { 1, 0 }, shown = { 0 };
	MUST(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second));
	MUST(connect(c, (void *)&a, sizeof a));
	int d = MUST(accept(s, 0, 0)), v;
	socklen_t l;
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		v = -1;
		l = sizeof v;
		int r = getsockopt(d, all[i].level, all[i].option, &v, &l);
		say("option %d/%d of an accepted one: %d, %d", all[i].level, all[i].option, r, v);
	}
	l = sizeof shown;
	TRY(getsockopt(d, SOL_SOCKET, SO_RCVTIMEO, &shown, &l));
	say("%ld s", (long)shown.tv_sec);
	close(s); close(c); close(d);
}

static void at_mark(int s)
{
	int at = -1, n = -1;
	MUST(ioctl(s, SIOCATMARK, &at));
	MUST(ioctl(s, FIONREAD, &n));
	say("at the mark %d, %d bytes", at, n);
	say_poll("then", s);
	struct pollfd p = { s, POLLPRI, 0 };
	int r = poll(&p, 1, 0);
	say("urgent: poll %d, %#x", r, p.revents);
	fd_set set;
	FD_ZERO(&set);
	FD_SET(s, &set);
	struct timeval none = { 0 };
	TRY(select(s + 1, NULL, NULL, &set, &none));
}

static void take(int s, int flags, size_t room)
{
	char b[20] = { 0 };
	errno = 0;
	int r = recv(s, b, room, flags | MSG_DONTWAIT);
	say("received with %#x into %zu: %d %s \"%s\"", flags, room, r, r < 0 ? strerrorname_np(errno) : "", b);
}

static void urgent(int inlined)
{
	struct sockaddr_in a = v4("127.0.0.1", 0);
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(bind(s, (void *)&a, sizeof a));
	MUST(listen(s, 1));
	a.sin_port = htons(port_of(s));
	TRY(send(c, "x", 1, MSG_OOB | MSG_NOSIGNAL));
	MUST(connect(c, (void *)&a, sizeof a));
	int d = MUST(accept(s, 0, 0));
	MUST(setsockopt(d, SOL_SOCKET, SO_OOBINLINE, &inlined, 4));
	take(d, MSG_OOB, 9);
	at_mark(d);
	TRY(send(c, "one!", 4, MSG_OOB));
	at_mark(d);
	take(d, MSG_OOB | MSG_PEEK, 9);
	take(d, MSG_PEEK, 9);
	take(d, MSG_OOB, 9);
	take(d, MSG_OOB, 9);
	at_mark(d);
	take(d, 0, 9);
	at_mark(d);
	take(d, 0, 9);
	at_mark(d);
	say("alone");
	TRY(send(c, "!", 1, MSG_OOB));
	at_mark(d);
	take(d, MSG_PEEK, 9);
	take(d, MSG_OOB, 0);
	TRY(send(c, "two", 3, 0));
	at_mark(d);
	take(d, MSG_PEEK, 9);
	take(d, 0, 2);
	take(d, 0, 9);
	take(d, MSG_OOB, 9);
	at_mark(d);
	say("another before the first is received");
	TRY(send(c, "ab?", 3, MSG_OOB));
	TRY(send(c, "cd!", 3, MSG_OOB));
	at_mark(d);
	take(d, 0, 9);
	take(d, MSG_OOB, 9);
	take(d, 0, 9);
	say("another where the first is next");
	TRY(send(c, "?", 1, MSG_OOB));
	TRY(send(c, "ef!", 3, MSG_OOB));
	at_mark(d);
	take(d, MSG_PEEK, 9);
	take(d, 0, 9);
	take(d, MSG_OOB, 9);
	TRY(send(c, "g", 1, 0));
	take(d, 0, 9);
	TRY(send(c, "?", 1, MSG_OOB));
	TRY(send(c, "!", 1, MSG_OOB));
	at_mark(d);
	take(d, 0, 9);
	take(d, MSG_OOB, 9);
	char b[9];
	struct iovec v = { b, sizeof b };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	TRY(send(c, "!", 1, MSG_OOB));
	TRY(recvmsg(d, &m, MSG_OOB | MSG_DONTWAIT));
	say("flags %#x", m.msg_flags);
	TRY(shutdown(c, SHUT_WR));
	take(d, 0, 9);
	take(d, MSG_OOB, 9);
	at_mark(d);
	close(s); close(c); close(d);
}

/* What does not fit is not sent: the last byte that is, is urgent. */
static void partly_urgent(void)
{
	static char data[1 << 20], b[1 << 16];
	struct sockaddr_in a = v4("127.0.0.1", 0);
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), c = MUST(socket(AF_INET, SOCK_STREAM, 0)), few = 4608;
	MUST(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &few, 4));
	MUST(setsockopt(c, SOL_SOCKET, SO_SNDBUF, &few, 4));
	MUST(bind(s, (void *)&a, sizeof a));
	MUST(listen(s, 1));
	take(s, MSG_OOB, 9);
	take(s, 0, 9);
	a.sin_port = htons(port_of(s));
	MUST(connect(c, (void *)&a, sizeof a));
	int d = MUST(accept(s, 0, 0));
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = i % 251;
	long n = send(c, data, sizeof data, MSG_OOB | MSG_DONTWAIT), got = 0, r;
	HOLDS(n > 1 && n < sizeof b);
	while (got < n - 1 && (r = recv(d, b, n - 1 - got, 0)) > 0)
		got += r;
	HOLDS(got == n - 1);
	int mark = 0;
	MUST(ioctl(d, SIOCATMARK, &mark));
	HOLDS(mark == 1);
	TRY(recv(d, b, 1, MSG_OOB));
	HOLDS(b[0] == data[n - 1]);
	close(s); close(c); close(d);
}

static void say_waited(const char *what, int s, int events)
{
	struct pollfd p = { s, events, 0 };
	int r = poll(&p, 1, 600000);
	say("%s: poll %d, %#x", what, r, p.revents);
}

static pid_t sends_later(int s, const char *text, int flags)
{
	pid_t pid = MUST(fork());
	if (!pid) {
		until_in_call(getppid(), getppid(), SYS_poll);
		_exit(send(s, text, strlen(text), flags) < 0);
	}
	return pid;
}

/* Who waits for urgent bytes, or past them, is woken; who sends nothing else goes on for ever. */
static void urgent_waits(void)
{
	struct sockaddr_in a = v4("127.0.0.1", 0);
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(bind(s, (void *)&a, sizeof a));
	MUST(listen(s, 1));
	a.sin_port = htons(port_of(s));
	MUST(connect(c, (void *)&a, sizeof a));
	int d = MUST(accept(s, 0, 0));
	MUST(send(c, "!", 1, MSG_OOB));
	take(d, MSG_OOB, 9);
	pid_t pid = sends_later(c, "hello", 0);
	say_waited("bytes behind an urgent one", d, POLLIN);
	MUST(waitpid(pid, 0, 0));
	pid = sends_later(c, "?", MSG_OOB);
	say_waited("an urgent one behind bytes", d, POLLPRI);
	MUST(waitpid(pid, 0, 0));
	take(d, 0, 9);
	take(d, MSG_OOB, 9);
	pid = sends_later(c, "!", MSG_OOB);
	say_waited("an urgent one behind an urgent one", d, POLLPRI);
	MUST(waitpid(pid, 0, 0));
	take(d, MSG_OOB, 9);
	int sent = 0;
	char b;
	for (int i = 0; i < 6000; i++) {
		sent += send(c, "!", 1, MSG_OOB | MSG_DONTWAIT) == 1;
		/* On Linux it may come later. */
		recv(d, &b, 1, MSG_OOB);
	}
	say("of 6000 beats %d are sent", sent);
	close(s); close(c); close(d);
}

/* A connection that is over has no other side. */
static void over(void)
{
	struct sockaddr_in a = v4("127.0.0.1", 0);
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), c, d, port;
	MUST(bind(s, (void *)&a, sizeof a));
	MUST(listen(s, 5));
	a.sin_port = htons(port = port_of(s));
	struct linger hard = { 1, 0 };
	for (int way = 0; way < 4; way++) {
		say("way %d", way);
		c = MUST(socket(AF_INET, SOCK_STREAM, 0));
		MUST(connect(c, (void *)&a, sizeof a));
		d = MUST(accept(s, 0, 0));
		switch (way) {
		case 0:
			MUST(send(c, "unread", 6, 0));
			MUST(setsockopt(c, SOL_SOCKET, SO_LINGER, &hard, sizeof hard));
			close(c);
			c = -1;
			break;
		case 1:
			MUST(shutdown(c, SHUT_WR));
			break;
		case 2:
			MUST(shutdown(c, SHUT_WR));
			say_name("half", d, port, getpeername);
			MUST(shutdown(d, SHUT_WR));
			break;
		case 3:
			close(c);
			c = -1;
		}
		say_name("here", d, port, getpeername);
		say_name("here", d, port, getsockname);
		if (c >= 0) {
			say_name("there", c, port, getpeername);
			close(c);
		}
		char b[9];
		TRY(recv(d, b, 9, MSG_DONTWAIT));
		TRY(recv(d, b, 9, MSG_DONTWAIT));
		close(d);
	}
	/* Reset before it is accepted. */
	c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(c, (void *)&a, sizeof a));
	MUST(setsockopt(c, SOL_SOCKET, SO_LINGER, &hard, sizeof hard));
	close(c);
	struct sockaddr_in from;
	socklen_t l = sizeof from;
	d = MUST(accept(s, (void *)&from, &l));
	say("from family %d, %u bytes", from.sin_family, l);
	say_name("accepted", d, port, getpeername);
	close(d); close(s);
}

/* What netlink and the calls of sockets tell of interfaces; of Linux's attributes those that both have. */
static void show_dump(int s, int type, int family, int flags, int length)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg body;
	} q = { { sizeof q.h + length, type, flags, 7, 0 }, { .ifi_family = family } };
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK }, from;
	static char b[65536] __attribute__((aligned(8)));
	say("ask for %d of family %d with %#x, %d bytes", type, family, flags, length);
	TRY(sendto(s, &q, q.h.nlmsg_len, 0, (void *)&kernel, sizeof kernel));
	for (;;) {
		socklen_t l = sizeof from;
		int n = recvfrom(s, b, sizeof b, MSG_DONTWAIT, (void *)&from, &l);
		if (n < 0)
			break;
		say("from %d of %u bytes, port %u", from.nl_family, l, from.nl_pid);
		for (struct nlmsghdr *h = (void *)b; NLMSG_OK(h, (unsigned)n); h = NLMSG_NEXT(h, n)) {
			say("  type %d, flags %#x, number %u, %s", h->nlmsg_type, h->nlmsg_flags, h->nlmsg_seq,
				h->nlmsg_pid == (unsigned)getpid() ? "ours" : "not ours");
			if (h->nlmsg_type == NLMSG_ERROR) {
				int e = *(int *)NLMSG_DATA(h);
				say("  error %s, %u bytes", e ? strerrorname_np(-e) : "none", h->nlmsg_len);
			}
			if (h->nlmsg_type != RTM_NEWLINK && h->nlmsg_type != RTM_NEWADDR)
				continue;
			int link = h->nlmsg_type == RTM_NEWLINK, fixed = link ? sizeof(struct ifinfomsg) : sizeof(struct ifaddrmsg);
			char *data = NLMSG_DATA(h), line[200];
			int left = h->nlmsg_len - NLMSG_HDRLEN - fixed;
			if (link) {
				struct ifinfomsg *i = (void *)data;
				say("  interface %d, type %d, flags %#x", i->ifi_index, i->ifi_type, i->ifi_flags);
			} else {
				struct ifaddrmsg *i = (void *)data;
				say("  address of %d/%d, flags %#x, scope %d, interface %d", i->ifa_family, i->ifa_prefixlen, i->ifa_flags, i->ifa_scope, i->ifa_index);
			}
			for (struct rtattr *r = (void *)(data + fixed); RTA_OK(r, left); r = RTA_NEXT(r, left)) {
				static const int of_link[] = { IFLA_IFNAME, IFLA_TXQLEN, IFLA_LINKMODE, IFLA_MTU, IFLA_GROUP, IFLA_ADDRESS, IFLA_BROADCAST };
				static const int of_address[] = { IFA_ADDRESS, IFA_LOCAL, IFA_LABEL, IFA_FLAGS };
				const int *known = link ? of_link : of_address;
				int at = 0, is_known = 0;
				for (unsigned i = 0; i < (link ? sizeof of_link : sizeof of_address) / sizeof *known; i++)
					is_known |= known[i] == r->rta_type;
				if (!is_known)
					continue;
				line[0] = 0;
				for (unsigned i = 0; i < RTA_PAYLOAD(r) && i < 40; i++)
					at += sprintf(line + at, "%02x", ((unsigned char *)RTA_DATA(r))[i]);
				say("    attribute %d: %s", r->rta_type, line);
			}
		}
	}
	say("%s", strerrorname_np(errno));
}

static void netlink(void)
{
	TRY(socket(AF_NETLINK, SOCK_STREAM, NETLINK_ROUTE));
	TRY(socket(AF_NETLINK, SOCK_RAW, 99));
	int s = MUST(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)), t = MUST(socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE)), v;
	static const int of_socket[] = { SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ACCEPTCONN };
	for (unsigned i = 0; i < sizeof of_socket / 4; i++) {
		socklen_t l = sizeof v;
		TRY(getsockopt(s, SOL_SOCKET, of_socket[i], &v, &l));
		say("%d", v);
	}
	struct sockaddr_nl a = { .nl_family = AF_NETLINK };
	socklen_t l = sizeof a;
	TRY(getsockname(s, (void *)&a, &l));
	say("%u bytes, port %u", l, a.nl_pid);
	TRY(bind(s, (void *)&a, 8));
	TRY(bind(s, (void *)&a, sizeof a));
	TRY(getsockname(s, (void *)&a, &l));
	HOLDS(a.nl_pid == (unsigned)getpid());
	TRY(bind(t, (void *)&a, sizeof a));
	a.nl_pid++;
	TRY(bind(s, (void *)&a, sizeof a));
	a.nl_pid = 0;
	TRY(bind(s, (void *)&a, sizeof a));
	TRY(bind(t, (void *)&a, sizeof a));
	TRY(getsockname(t, (void *)&a, &l));
	HOLDS(a.nl_pid != 0 && a.nl_pid != (unsigned)getpid());
	a.nl_family = AF_INET;
	TRY(bind(t, (void *)&a, sizeof a));
	TRY(listen(t, 1));
	TRY(accept(t, 0, 0));
	TRY(shutdown(t, SHUT_RDWR));
	TRY(getpeername(t, (void *)&a, &l));
	say("%u bytes, family %d, port %u", l, a.nl_family, a.nl_pid);
	a.nl_pid = 123456789;
	TRY(sendto(t, &a, 4, 0, (void *)&a, sizeof a));
	close(t);
	enum { ALL = NLM_F_REQUEST | NLM_F_DUMP };
	show_dump(s, RTM_GETLINK, AF_UNSPEC, ALL, 16);
	say_poll("empty", s);
	show_dump(s, RTM_GETLINK, AF_UNSPEC, ALL, 1);
	show_dump(s, RTM_GETADDR, AF_UNSPEC, ALL, 8);
	show_dump(s, RTM_GETADDR, AF_INET, ALL, 8);
	show_dump(s, RTM_GETADDR, AF_INET6, ALL, 8);
	show_dump(s, RTM_GETLINK, AF_UNSPEC, NLM_F_REQUEST, 16);
	show_dump(s, RTM_GETLINK, AF_UNSPEC, NLM_F_REQUEST, 8);
	show_dump(s, RTM_GETLINK, AF_UNSPEC, NLM_F_DUMP, 16);
	show_dump(s, RTM_GETLINK, AF_UNSPEC, ALL, 0);
	show_dump(s, 3, AF_UNSPEC, NLM_F_REQUEST | NLM_F_ACK, 4);
	show_dump(s, 999, AF_UNSPEC, NLM_F_REQUEST, 4);
	close(s);
	static const int of_interface[] = { SIOCGIFNAME, SIOCGIFINDEX, SIOCGIFFLAGS, SIOCGIFMTU, SIOCGIFADDR, SIOCGIFNETMASK, SIOCGIFBRDADDR, SIOCGIFDSTADDR,
		SIOCGIFHWADDR, SIOCGIFMETRIC, SIOCGIFTXQLEN };
	static const int families[] = { AF_INET, AF_INET6, AF_UNIX };
	for (int f = 0; f < 3; f++) {
		s = MUST(socket(families[f], SOCK_DGRAM, 0));
		for (unsigned i = 0; i < sizeof of_interface / 4; i++)
			for (int other = 0; other < 2; other++) {
				struct ifreq r = { 0 };
				if (of_interface[i] == SIOCGIFNAME)
					r.ifr_ifindex = other ? 99 : 1;
				else
					strcpy(r.ifr_name, other ? "none" : "lo");
				char line[100];
				int at = 0;
				errno = 0;
				int e = ioctl(s, of_interface[i], &r);
				for (int j = 0; j < 16; j++)
					at += sprintf(line + at, "%02x", ((unsigned char *)&r.ifr_addr)[j]);
				say("%#x: %d %s, \"%s\" %s", of_interface[i], e, e ? strerrorname_np(errno) : "", r.ifr_name, line);
			}
		struct ifreq room[3];
		struct ifconf all = { .ifc_len = sizeof room };
		TRY(ioctl(s, SIOCGIFCONF, &all));
		say("%d", all.ifc_len);
		for (int n = 39; n <= 80; n += 41) {
			all.ifc_req = room;
			all.ifc_len = n;
			TRY(ioctl(s, SIOCGIFCONF, &all));
			say("%d", all.ifc_len);
		}
		say("%s", room[0].ifr_name);
		close(s);
	}
}

/* A socket that is tied to an interface, and what avoids congestion. */
/* Who stopped writing before it was connected. */
static void ended_early(void)
{
	struct sockaddr_in a = v4("127.0.0.1", 0);
	char b[10];
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(bind(s, (void *)&a, sizeof a));
	MUST(listen(s, 5));
	a.sin_port = htons(port_of(s));
	for (int again = 0; again < 2; again++) {
		int c = MUST(socket(AF_INET, SOCK_STREAM, 0));
		TRY(shutdown(c, SHUT_WR));
		TRY(connect(c, (void *)&a, sizeof a));
		int d = MUST(accept4(s, 0, 0, SOCK_NONBLOCK));
		TRY(send(c, "x", 1, MSG_NOSIGNAL));
		TRY(recv(d, b, sizeof b, 0));
		if (again)
			TRY(shutdown(c, SHUT_WR));
		else
			TRY(close(c));
		TRY(recv(d, b, sizeof b, 0));
		if (again)
			close(c);
		close(d);
	}
	close(s);
}

/* The other side has ended, and answers what comes all the same by a reset: the end is what a reader finds. */
static void reset_behind_the_end(void)
{
	struct sockaddr_in a = v4("127.0.0.1", 0);
	char b[10];
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), error;
	socklen_t size = sizeof error;
	MUST(bind(s, (void *)&a, sizeof a));
	MUST(listen(s, 5));
	a.sin_port = htons(port_of(s));
	for (int how = 0; how < 4; how++) {
		int c = MUST(socket(AF_INET, SOCK_STREAM, 0));
		MUST(connect(c, (void *)&a, sizeof a));
		int d = MUST(accept(s, 0, 0));
		say("how %d", how);
		if (how == 3)
			MUST(setsockopt(d, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger)));
		TRY(send(d, "answer", 6, 0));
		if (how < 3)
			close(d);
		else
			TRY(shutdown(d, SHUT_WR));
		if (how < 3)
			TRY(send(c, "more", 4, MSG_NOSIGNAL));
		else
			close(d);
		if (how == 1)
			TRY(send(c, "once more", 9, MSG_NOSIGNAL));
		if (how == 2) {
			TRY(getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &size));
			say("%d", error);
		}
		for (int i = 0; i < 2; i++) {
			TRY(recv(c, b, sizeof b, MSG_PEEK));
			TRY(recv(c, b, sizeof b, 0));
		}
		TRY(getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &size));
		say("%d", error);
		TRY(send(c, "x", 1, MSG_NOSIGNAL));
		TRY(recv(c, b, sizeof b, 0));
		close(c);
	}
	close(s);
}

static void ties(void)
{
	char name[32];
	int t = MUST(socket(AF_INET, SOCK_STREAM, 0)), u = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), one = 1, v = 7;
	socklen_t l = sizeof name;
	TRY(getsockopt(t, SOL_SOCKET, SO_BINDTODEVICE, name, &l));
	say("%u bytes", l);
	TRY(setsockopt(t, SOL_SOCKET, SO_BINDTODEVICE, "none", 4));
	TRY(setsockopt(t, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
	l = 15;
	TRY(getsockopt(t, SOL_SOCKET, SO_BINDTODEVICE, name, &l));
	l = sizeof name;
	TRY(getsockopt(t, SOL_SOCKET, SO_BINDTODEVICE, name, &l));
	say("%u bytes, %s", l, name);
	l = sizeof v;
	TRY(getsockopt(t, SOL_SOCKET, SO_BINDTOIFINDEX, &v, &l));
	say("interface %d", v);
	TRY(setsockopt(t, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
	TRY(setsockopt(u, SOL_SOCKET, SO_BINDTODEVICE, "lo\0more", 7));
	TRY(setsockopt(t, SOL_SOCKET, SO_BINDTOIFINDEX, &one, 4));
	one = -1;
	TRY(setsockopt(t, SOL_SOCKET, SO_BINDTOIFINDEX, &one, 4));
	TRY(setsockopt(t, SOL_SOCKET, SO_BINDTOIFINDEX, &one, 2));
	static const char *const names[] = { "cubic", "reno", "no such one", "a name that is longer than the room for it" };
	for (int i = 0; i < 4; i++) {
		TRY(setsockopt(t, IPPROTO_TCP, TCP_CONGESTION, names[i], strlen(names[i])));
		memset(name, 'x', sizeof name);
		l = sizeof name;
		TRY(getsockopt(t, IPPROTO_TCP, TCP_CONGESTION, name, &l));
		say("%u bytes, %s", l, name);
	}
	TRY(setsockopt(t, IPPROTO_TCP, TCP_CONGESTION, "", 0));
	TRY(setsockopt(t, IPPROTO_TCP, TCP_CONGESTION, "reno\0", 6));
	l = 3;
	TRY(getsockopt(t, IPPROTO_TCP, TCP_CONGESTION, name, &l));
	say("%u bytes, %.3s", l, name);
	close(t); close(u);
}

/* What sendmsg refuses, and that a connected socket has no use for an address. */
static void messages_refused(void)
{
	static char large[128 * 1024];
	struct iovec one = { large, 1024 };
	struct sockaddr_in to = v4("127.0.0.1", 0);
	int l = MUST(socket(AF_INET, SOCK_STREAM, 0)), c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	int fresh = MUST(socket(AF_INET, SOCK_STREAM, 0)), u = MUST(socket(AF_INET, SOCK_DGRAM, 0)), none = MUST(open("/dev/null", O_WRONLY));
	MUST(bind(l, (void *)&to, sizeof to));
	MUST(listen(l, 1));
	to = v4("127.0.0.1", port_of(l));
	MUST(connect(c, (void *)&to, sizeof to));
	struct msghdr m = { .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &one, .msg_iovlen = 1 };
	TRY(sendmsg(400, &m, 0));
	TRY(sendmsg(none, &m, 0));
	TRY(sendmsg(u, NULL, 0));
	TRY(sendmsg(fresh, &m, MSG_NOSIGNAL));
	TRY(sendmsg(u, &m, MSG_OOB));
	one.iov_base = (void *)-1;
	TRY(sendmsg(u, &m, 0));
	one = (struct iovec){ large, sizeof large };
	TRY(sendmsg(u, &m, 0));
	one.iov_len = 1024;
	m.msg_namelen = 1;
	TRY(sendmsg(u, &m, 0));
	m.msg_name = (void *)-1;
	m.msg_namelen = sizeof to;
	TRY(sendmsg(u, &m, 0));
	struct sockaddr_in other = v4("127.0.0.1", 1);
	m.msg_name = &other;
	TRY(sendmsg(c, &m, 0));
	m.msg_iov = NULL;
	TRY(sendmsg(c, &m, 0));
	m.msg_iov = &one;
	MUST(shutdown(c, SHUT_WR));
	TRY(sendmsg(c, &m, MSG_NOSIGNAL));
	close(l), close(c), close(fresh), close(u), close(none);
}

int main(void)
{
	on_one_cpu();
	making();
	messages_refused();
	ties();
	refused();
	say("version 4");
	connections(AF_INET);
	datagrams(AF_INET);
	say("version 6");
	connections(AF_INET6);
	datagrams(AF_INET6);
	much();
	both_versions();
	options();
	heads4(0);
	heads6(0);
	heads4(IPPROTO_UDPLITE);
	heads6(IPPROTO_UDPLITE);
	coverage();
	heads_of_streams();
	inherited();
	urgent(0);
	urgent(1);
	partly_urgent();
	ended_early();
	reset_behind_the_end();
	urgent_waits();
	over();
	netlink();
	return 0;
}
