/* What is held back, groups of receivers, flows, and addresses of sockets over the loopback interface. */
#include "say.h"
#include "blocked.h"
#include "loopback.h"
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include "after_delivery.h"

#ifndef UDP_CORK
#define UDP_CORK 1
#endif

static void say_name(const char *what, int s, int port)
{
	struct sockaddr_in6 a;
	struct sockaddr_in *four = (void *)&a;
	char text[100] = "?";
	socklen_t l = sizeof a;
	MUST(getsockname(s, (void *)&a, &l));
	inet_ntop(a.sin6_family, a.sin6_family == AF_INET ? (void *)&four->sin_addr : &a.sin6_addr, text, sizeof text);
	int p = ntohs(a.sin6_port);
	say("%s: family %d, %s, %s port", what, a.sin6_family, text, p == 0 ? "no" : p == port ? "that" : "another");
}

/* Receives what is there within ten minutes, or, where nothing is to come, at once. */
static long next(int s, int comes)
{
	char bytes[70000];
	struct pollfd p = { s, POLLIN, 0 };
	poll(&p, 1, comes ? 600000 : 0);
	return recv(s, bytes, sizeof bytes, MSG_DONTWAIT);
}

#define NOTHING(s) say("%s: %s", #s " has nothing", next(s, 0) == -1 && errno == EAGAIN ? "yes" : "NO")
#define COMES(s) say("%s receives %ld", #s, next(s, 1))

/* Receives a number of bytes, and returns how many came at first. */
static long first_of(int s, long all)
{
	long first = next(s, 1), sum = first, n;
	while (sum < all && (n = next(s, 1)) > 0)
		sum += n;
	return first;
}

static void streams(void)
{
	int l = MUST(socket(AF_INET, SOCK_STREAM, 0)), one = 1, none = 0;
	struct sockaddr_in a = v4("127.0.0.1", 0);
	MUST(bind(l, (void *)&a, sizeof a));
	MUST(listen(l, 1));
	a.sin_port = htons(port_of(l));
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(s, (void *)&a, sizeof a));
	int r = MUST(accept(l, NULL, NULL));
	/* Both sides have sent something, so that nothing is under way. */
	MUST(send(s, "ab", 2, 0));
	COMES(r);
	MUST(send(r, "ab", 2, 0));
	COMES(s);
	/* The first look may come too late on a slow machine: what comes with the rest did not come
	   alone. What is held back goes after a fifth of a second, so a slow machine may need another
	   try. */
	long first = 0;
	for (int tries = 0; tries < 20 && first != 21; tries++) {
		MUST(send(s, "0123456789", 10, MSG_MORE));
		MUST(send(s, "0123456789", 10, MSG_MORE));
		MUST(send(s, "x", 1, 0));
		first = first_of(r, 21);
	}
	say("all at once: %ld", first);
	MUST(send(s, "held", 4, MSG_MORE));
	say("held for a while: %ld", next(r, 1));
	first = 0;
	for (int tries = 0; tries < 20 && first != 12; tries++) {
		MUST(setsockopt(s, IPPROTO_TCP, TCP_CORK, &one, sizeof one));
		MUST(write(s, "corked", 6));
		MUST(write(s, "corked", 6));
		MUST(setsockopt(s, IPPROTO_TCP, TCP_CORK, &none, sizeof none));
		first = first_of(r, 12);
	}
	say("uncorked: %ld", first);
	MUST(setsockopt(s, IPPROTO_TCP, TCP_CORK, &one, sizeof one));
	MUST(write(s, "corked", 6));
	MUST(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
	say("pushed: %ld", next(r, 1));
	MUST(write(s, "corked", 6));
	say("in time: %ld", next(r, 1));
	MUST(write(s, "the last", 8));
	MUST(shutdown(s, SHUT_WR));
	say("shut: %ld", next(r, 1));
	say("end: %ld", next(r, 1));
	close(s), close(r);
	s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(s, (void *)&a, sizeof a));
	r = MUST(accept(l, NULL, NULL));
	MUST(send(s, "at its end", 10, MSG_MORE));
	close(s);
	say("closed: %ld", next(r, 1));
	say("end: %ld", next(r, 1));
	close(r);
	/* Many times what fits: nothing is lost, and nothing waits for ever. */
	s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(s, (void *)&a, sizeof a));
	r = MUST(accept(l, NULL, NULL));
	pid_t child = MUST(fork());
	if (child == 0) {
		static char many[10000];
		close(r);
		MUST(setsockopt(s, IPPROTO_TCP, TCP_CORK, &one, sizeof one));
		for (int i = 0; i < 1000; i++)
			MUST(send(s, many, i % 2 ? sizeof many : 1, 0));
		_exit(0);
	}
	close(s);
	long sum = 0, n;
	while ((n = next(r, 1)) > 0)
		sum += n;
	say("all of it: %ld, then %ld", sum, n);
	int status;
	MUST(waitpid(child, &status, 0));
	/* An address with the first bytes connects. */
	s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	TRY(sendto(s, "first", 5, MSG_FASTOPEN, (void *)&a, sizeof a));
	close(r);
	r = MUST(accept(l, NULL, NULL));
	say("connected: %ld", next(r, 1));
	TRY(send(s, "x", 1, MSG_FASTOPEN));
	close(s), close(r), close(l);
}

static void messages(void)
{
	int r = MUST(socket(AF_INET, SOCK_DGRAM, 0)), s = MUST(socket(AF_INET, SOCK_DGRAM, 0)), one = 1, none = 0;
	struct sockaddr_in a = v4("127.0.0.1", 0), other = v4("127.0.0.1", 9);
	MUST(bind(r, (void *)&a, sizeof a));
	a.sin_port = htons(port_of(r));
	TRY(sendto(s, "0123456789", 10, MSG_MORE, (void *)&a, sizeof a));
	TRY(sendto(s, "01234", 5, MSG_MORE, (void *)&other, sizeof other));
	NOTHING(r);
	TRY(send(s, "x", 1, 0));
	COMES(r);
	NOTHING(r);
	MUST(setsockopt(s, IPPROTO_UDP, UDP_CORK, &one, sizeof one));
	MUST(sendto(s, "01234", 5, 0, (void *)&a, sizeof a));
	MUST(sendto(s, "01234", 5, 0, (void *)&a, sizeof a));
	NOTHING(r);
	MUST(setsockopt(s, IPPROTO_UDP, UDP_CORK, &none, sizeof none));
	COMES(r);
	static char many[65000];
	TRY(sendto(s, many, sizeof many, MSG_MORE, (void *)&a, sizeof a));
	TRY(sendto(s, many, sizeof many, MSG_MORE, (void *)&a, sizeof a));
	TRY(sendto(s, "x", 1, 0, (void *)&a, sizeof a));
	COMES(r);
	TRY(sendto(s, "lost", 4, MSG_MORE, (void *)&a, sizeof a));
	close(s);
	NOTHING(r);
	close(r);
}

static void groups(void)
{
	int r = MUST(socket(AF_INET, SOCK_DGRAM, 0)), q = MUST(socket(AF_INET, SOCK_DGRAM, 0)), one = 1, none = 0;
	struct sockaddr_in any = v4("0.0.0.0", 0), group = v4("239.1.2.3", 0), alone = v4("239.9.9.9", 0);
	MUST(setsockopt(r, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	MUST(setsockopt(q, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	MUST(bind(r, (void *)&any, sizeof any));
	any.sin_port = group.sin_port = alone.sin_port = htons(port_of(r));
	MUST(bind(q, (void *)&any, sizeof any));
	struct ip_mreq m = { group.sin_addr, v4("127.0.0.1", 0).sin_addr };
	TRY(setsockopt(r, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m));
	TRY(setsockopt(r, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m));
	m.imr_multiaddr.s_addr = htonl(0x0a000001);
	TRY(setsockopt(r, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m));
	TRY(setsockopt(r, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, 4));
	struct ip_mreqn n = { alone.sin_addr, { 0 }, 77 };
	TRY(setsockopt(r, IPPROTO_IP, IP_ADD_MEMBERSHIP, &n, sizeof n));
	TRY(setsockopt(r, IPPROTO_IP, IP_DROP_MEMBERSHIP, &n, sizeof n));
	n.imr_ifindex = 1;
	TRY(setsockopt(r, IPPROTO_IP, IP_DROP_MEMBERSHIP, &n, sizeof n));
	int s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	TRY(sendto(s, "x", 1, 0, (void *)&group, sizeof group));
	struct in_addr own = v4("10.1.1.1", 0).sin_addr;
	TRY(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own));
	own = v4("127.0.0.1", 0).sin_addr;
	TRY(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own));
	TRY(sendto(s, "group", 5, 0, (void *)&group, sizeof group));
	COMES(r);
	COMES(q);
	MUST(setsockopt(q, IPPROTO_IP, IP_MULTICAST_ALL, &none, sizeof none));
	TRY(sendto(s, "group", 5, 0, (void *)&group, sizeof group));
	COMES(r);
	NOTHING(q);
	TRY(sendto(s, "absent", 6, 0, (void *)&alone, sizeof alone));
	NOTHING(r);
	m = (struct ip_mreq){ group.sin_addr, own };
	TRY(setsockopt(r, IPPROTO_IP, IP_DROP_MEMBERSHIP, &m, sizeof m));
	TRY(sendto(s, "group", 5, 0, (void *)&group, sizeof group));
	NOTHING(r);
	struct sockaddr_in all = v4("127.255.255.255", ntohs(any.sin_port));
	TRY(sendto(s, "all", 3, 0, (void *)&all, sizeof all));
	MUST(setsockopt(s, SOL_SOCKET, SO_BROADCAST, &one, sizeof one));
	TRY(sendto(s, "all", 3, 0, (void *)&all, sizeof all));
	COMES(r);
	COMES(q);
	int tcp = MUST(socket(AF_INET, SOCK_STREAM, 0));
	TRY(setsockopt(tcp, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m));
	TRY(connect(tcp, (void *)&group, sizeof group));
	close(r), close(q), close(s), close(tcp);
	int six = MUST(socket(AF_INET6, SOCK_DGRAM, 0));
	struct ipv6_mreq m6 = { v6("ff02::5", 0).sin6_addr, 1 };
	TRY(setsockopt(six, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &m6, sizeof m6));
	TRY(setsockopt(six, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &m6, sizeof m6));
	TRY(setsockopt(six, IPPROTO_IPV6, IPV6_DROP_MEMBERSHIP, &m6, sizeof m6));
	m6.ipv6mr_interface = 9;
	TRY(setsockopt(six, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &m6, sizeof m6));
	close(six);
}

/* What one sender sends goes to one socket of those that share a port. */
static void flows(void)
{
	int r[4], one = 1, several = 0, used = 0, got[4] = { 0 };
	struct sockaddr_in a = v4("127.0.0.1", 0);
	for (int i = 0; i < 4; i++) {
		r[i] = MUST(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
		MUST(setsockopt(r[i], SOL_SOCKET, SO_REUSEPORT, &one, sizeof one));
		MUST(bind(r[i], (void *)&a, sizeof a));
		a.sin_port = htons(port_of(r[i]));
	}
	for (int sender = 0; sender < 64; sender++) {
		int s = MUST(socket(AF_INET, SOCK_DGRAM, 0)), receivers = 0;
		for (int i = 0; i < 5; i++)
			MUST(sendto(s, "x", 1, 0, (void *)&a, sizeof a));
		for (int i = 0; i < 4; i++) {
			int n = 0;
			while (recv(r[i], &one, 1, 0) == 1)
				n++;
			receivers += n > 0;
			got[i] += n;
		}
		several += receivers != 1;
		close(s);
	}
	for (int i = 0; i < 4; i++)
		used += got[i] > 0, close(r[i]);
	say("flows that were split: %d; sockets that were used: %d", several, used);
}

static void addresses(void)
{
	int u6 = MUST(socket(AF_INET6, SOCK_DGRAM, 0)), u4 = MUST(socket(AF_INET, SOCK_DGRAM, 0)), one = 1;
	struct sockaddr_in four = v4("127.0.0.1", 9);
	struct sockaddr_in6 six = v6("::1", 9);
	TRY(sendto(u6, "x", 1, 0, (void *)&four, sizeof four));
	TRY(connect(u6, (void *)&four, sizeof four));
	say_name("connected", u6, 9);
	struct sockaddr unspecified = { .sa_family = AF_UNSPEC };
	TRY(connect(u6, &unspecified, sizeof unspecified));
	say_name("connected no more", u6, 9);
	TRY(connect(u6, (void *)&six, sizeof six));
	say_name("connected", u6, 9);
	TRY(sendto(u4, "x", 1, 0, (void *)&six, sizeof six));
	TRY(connect(u4, (void *)&six, sizeof six));
	close(u6);
	u6 = MUST(socket(AF_INET6, SOCK_DGRAM, 0));
	MUST(setsockopt(u6, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
	TRY(sendto(u6, "x", 1, 0, (void *)&four, sizeof four));
	TRY(connect(u6, (void *)&four, sizeof four));
	close(u6), close(u4);

	int l = MUST(socket(AF_INET, SOCK_STREAM, 0)), s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	int t = MUST(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in a = v4("127.0.0.1", 0), own = v4("127.0.0.1", 0);
	MUST(bind(l, (void *)&a, sizeof a));
	MUST(listen(l, 9));
	a.sin_port = htons(port_of(l));
	MUST(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	MUST(setsockopt(t, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	MUST(connect(s, (void *)&a, sizeof a));
	own.sin_port = htons(port_of(s));
	TRY(bind(t, (void *)&own, sizeof own));
	TRY(connect(t, (void *)&a, sizeof a));
	close(t);
	TRY(connect(s, &unspecified, sizeof unspecified));
	say_name("connected no more", s, ntohs(own.sin_port));
	TRY(connect(s, (void *)&a, sizeof a));
	TRY(send(s, "again", 5, 0));
	close(s);
	/* Bound to no address it is where its connection is. */
	int x = MUST(socket(AF_INET6, SOCK_STREAM, 0)), y = MUST(socket(AF_INET, SOCK_STREAM, 0));
	int k = MUST(socket(AF_INET6, SOCK_STREAM, 0));
	struct sockaddr_in6 any6 = v6("::", 0), to6 = v6("::1", 0);
	MUST(bind(k, (void *)&any6, sizeof any6));
	MUST(listen(k, 9));
	to6.sin6_port = htons(port_of(k));
	MUST(bind(x, (void *)&any6, sizeof any6));
	own.sin_port = htons(port_of(x));
	TRY(bind(y, (void *)&own, sizeof own));
	TRY(connect(x, (void *)&to6, sizeof to6));
	TRY(bind(y, (void *)&own, sizeof own));
	close(x), close(y), close(k);
	/* To itself. */
	s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	own = v4("127.0.0.1", 0);
	MUST(bind(s, (void *)&own, sizeof own));
	own.sin_port = htons(port_of(s));
	TRY(connect(s, (void *)&own, sizeof own));
	TRY(send(s, "itself", 6, 0));
	COMES(s);
	TRY(shutdown(s, SHUT_WR));
	COMES(s);
	close(s);
	/* The port comes with the connection. */
	s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	own = v4("127.0.0.1", 0);
	MUST(setsockopt(s, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one));
	TRY(bind(s, (void *)&own, sizeof own));
	say_name("bound", s, 0);
	TRY(connect(s, (void *)&a, sizeof a));
	say("port %s", port_of(s) ? "there" : "missing");
	close(s);
	s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	own = v4("10.1.2.3", 0);
	TRY(bind(s, (void *)&own, sizeof own));
	MUST(setsockopt(s, IPPROTO_IP, IP_FREEBIND, &one, sizeof one));
	TRY(bind(s, (void *)&own, sizeof own));
	close(s);
	/* A socket of version 6 that becomes one of version 4. */
	k = MUST(socket(AF_INET6, SOCK_STREAM, 0));
	any6 = v6("::", 0);
	MUST(bind(k, (void *)&any6, sizeof any6));
	MUST(listen(k, 9));
	a.sin_port = htons(port_of(k));
	s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(s, (void *)&a, sizeof a));
	t = MUST(accept(k, NULL, NULL));
	int form = AF_INET;
	TRY(setsockopt(k, IPPROTO_IPV6, IPV6_ADDRFORM, &form, sizeof form));
	TRY(setsockopt(t, IPPROTO_IPV6, IPV6_ADDRFORM, &form, sizeof form));
	say_name("of version 4", t, ntohs(a.sin_port));
	TRY(connect(t, &unspecified, sizeof unspecified));
	TRY(recv(s, &one, 1, 0));
	own = v4("0.0.0.0", 0);
	TRY(bind(t, (void *)&own, sizeof own));
	TRY(listen(t, 5));
	own = v4("127.0.0.1", port_of(t));
	int c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	TRY(connect(c, (void *)&own, sizeof own));
	x = MUST(accept(t, NULL, NULL));
	MUST(send(c, "four", 4, 0));
	COMES(x);
	TRY(connect(t, &unspecified, sizeof unspecified));
	close(x), close(c), close(s), close(t), close(k), close(l);
}

/* The routes of version 4, and an interface that is up already. */
static void routes(void)
{
	int s = MUST(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
	struct { struct nlmsghdr h; struct rtmsg body; } q = {
		{ sizeof q, RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, 1, 0 }, { .rtm_family = AF_INET } };
	MUST(send(s, &q, sizeof q, 0));
	static char b[65536] __attribute__((aligned(8)));
	for (int done = 0; !done;) {
		int n = MUST(recv(s, b, sizeof b, 0));
		for (struct nlmsghdr *h = (void *)b; NLMSG_OK(h, (unsigned)n); h = NLMSG_NEXT(h, n)) {
			done |= h->nlmsg_type != RTM_NEWROUTE;
			char line[300];
			int at = 0;
			for (unsigned i = 0; i < h->nlmsg_len - NLMSG_HDRLEN && i < 100; i++)
				at += sprintf(line + at, "%02x", ((unsigned char *)NLMSG_DATA(h))[i]);
			say("type %d, flags %#x: %s", h->nlmsg_type, h->nlmsg_flags, h->nlmsg_type == NLMSG_DONE ? "" : line);
		}
	}
	struct { struct nlmsghdr h; struct ifinfomsg body; } up = {
		{ sizeof up, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 2, 0 },
		{ .ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP } };
	MUST(send(s, &up, sizeof up, 0));
	MUST(recv(s, b, sizeof b, 0));
	say("up: %d", *(int *)NLMSG_DATA((struct nlmsghdr *)b));
	close(s);
	s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	struct ifreq r = { .ifr_name = "lo" };
	MUST(ioctl(s, SIOCGIFFLAGS, &r));
	TRY(ioctl(s, SIOCSIFFLAGS, &r));
	strcpy(r.ifr_name, "none");
	TRY(ioctl(s, SIOCSIFFLAGS, &r));
	close(s);
}

static void say_state(const char *what, int s)
{
	struct tcp_info i = { 0 };
	struct sockaddr_in a;
	socklen_t l = sizeof i;
	MUST(getsockopt(s, IPPROTO_TCP, TCP_INFO, &i, &l));
	l = sizeof a;
	say("%s: state %d, peer %d", what, i.tcpi_state, getpeername(s, (void *)&a, &l));
}

/* Waits until a poll shows all of these. */
static void until(int s, int events)
{
	struct pollfd p = { s, events, 0 };
	for (int tries = 0; tries < 300000 && (p.revents & events) != events; tries++)
		MUST(poll(&p, 1, 0)), sleep_ms(1);
	say("revents %#x", p.revents & events);
}

/* States after a socket was shut. */
static void states(void)
{
	int l = MUST(socket(AF_INET, SOCK_STREAM, 0)), s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in a = v4("127.0.0.1", 0);
	char c;
	MUST(bind(l, (void *)&a, sizeof a));
	MUST(listen(l, 9));
	a.sin_port = htons(port_of(l));
	say_state("listener", l);
	say_state("new", s);
	MUST(connect(s, (void *)&a, sizeof a));
	int r = MUST(accept(l, NULL, NULL));
	say_state("connected", s);
	TRY(shutdown(s, SHUT_WR));
	until(r, POLLRDHUP);
	say_state("ended by the other side", r);
	TRY(send(r, "x", 1, 0));
	COMES(s);
	TRY(shutdown(r, SHUT_WR));
	until(s, POLLRDHUP | POLLHUP);
	until(r, POLLRDHUP | POLLHUP);
	say_state("ended", s);
	say_state("ended", r);
	TRY(shutdown(s, SHUT_WR));
	TRY(shutdown(r, SHUT_RDWR));
	close(s), close(r);
	s = MUST(socket(AF_INET, SOCK_STREAM, 0));
	TRY(shutdown(l, SHUT_WR));
	say_state("listener", l);
	TRY(shutdown(l, SHUT_RD));
	say_state("no listener", l);
	TRY(accept(l, NULL, NULL));
	TRY(listen(l, 5));
	/* It has another port. */
	TRY(connect(s, (void *)&a, sizeof a));
	close(s), close(l);
	s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	TRY(shutdown(s, SHUT_RD));
	TRY(recv(s, &c, 1, MSG_DONTWAIT));
	MUST(connect(s, (void *)&a, sizeof a));
	TRY(shutdown(s, SHUT_RD));
	TRY(recv(s, &c, 1, MSG_DONTWAIT));
	TRY(recv(s, &c, 1, 0));
	close(s);
}

int main(void)
{
	on_one_cpu();
	routes();
	states();
	streams();
	messages();
	groups();
	flows();
	addresses();
	TRY(socket(AF_INET, SOCK_RAW, 0));
	TRY(socket(AF_INET, SOCK_RAW, 300));
	int pair[2];
	TRY(socketpair(AF_INET, SOCK_RAW, 0, pair));
	int s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	TRY(ioctl(s, 0x8914, NULL));
	close(s);
	return 0;
}
