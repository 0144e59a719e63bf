/* What TCP and UDP answer over the loopback interface. */
#include "say.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static struct sockaddr_in v4(const char *ip, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	inet_pton(AF_INET, ip, &a.sin_addr);
	return a;
}

static struct sockaddr_in6 v6(const char *ip, int port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	inet_pton(AF_INET6, ip, &a.sin6_addr);
	return a;
}

static int port_of(int s)
{
	struct sockaddr_in6 a;
	socklen_t l = sizeof a;
	MUST(getsockname(s, (void *)&a, &l));
	return ntohs(a.sin6_port);
}

static void say_name(const char *what, int s, int port, int (*call)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_storage a;
	char text[100] = "?";
	socklen_t l = sizeof a;
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
	sleep_ms(5);
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
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), p[2];
	TRY(socketpair(AF_INET, SOCK_STREAM, 0, p));
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
	for (int i = 0; i < 1000 && got < sent; i++) {
		while ((n = read(d, in, sizeof in)) > 0)
			got += n;
		sleep_ms(1);
	}
	HOLDS(got == sent && sent >= 100000);
	TRY(poll(&p, 1, 1000));
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
	say_poll("nobody there", y);
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

int main(void)
{
	making();
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
	return 0;
}
