/* What options of sockets take and show over the loopback interface, and what they do there. */
#include "say.h"
#include "blocked.h"
#include "loopback.h"
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include "after_delivery.h"

#ifndef SO_RCVMARK
#define SO_RCVMARK 75
#endif

/* A receiver of messages at a port of 127.0.0.1, and its address. */
static int receiver(struct sockaddr_in *a)
{
	int s = MUST(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	*a = v4("127.0.0.1", 0);
	MUST(bind(s, (void *)a, sizeof *a));
	a->sin_port = htons(port_of(s));
	return s;
}

static void connected(int pair[2])
{
	int l = MUST(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in a = v4("127.0.0.1", 0);
	MUST(bind(l, (void *)&a, sizeof a));
	MUST(listen(l, 1));
	a.sin_port = htons(port_of(l));
	pair[0] = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(pair[0], (void *)&a, sizeof a));
	pair[1] = MUST(accept(l, NULL, NULL));
	close(l);
}

static void show(const char *what, int s, int level, int option)
{
	int v = -99;
	socklen_t l = sizeof v;
	errno = 0;
	if (getsockopt(s, level, option, &v, &l))
		say("%s: %s", what, strerrorname_np(errno));
	else
		say("%s: %d of %u", what, v, l);
}

/* Sets an option to a few values and shows what it is then. */
static void numbers(const char *name, int s, int level, int option)
{
	static const int values[] = { 1, 5, 0, -1, 200, 70000 };
	char line[300];
	int n = snprintf(line, sizeof line, "%s:", name);
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		int v = values[i], now = -99;
		socklen_t l = sizeof now;
		errno = 0;
		const char *set = setsockopt(s, level, option, &v, sizeof v) ? strerrorname_np(errno) : "set";
		if (getsockopt(s, level, option, &now, &l))
			n += snprintf(line + n, sizeof line - n, " %s %s", set, strerrorname_np(errno));
		else
			n += snprintf(line + n, sizeof line - n, " %s %d", set, now);
	}
	say("%s", line);
}

#define NUMBERS(s, level, option) numbers(#s " " #option, s, level, option)

static void kept(void)
{
	int tcp = MUST(socket(AF_INET, SOCK_STREAM, 0)), udp = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	int tcp6 = MUST(socket(AF_INET6, SOCK_STREAM, 0)), udp6 = MUST(socket(AF_INET6, SOCK_DGRAM, 0));
	NUMBERS(tcp, SOL_SOCKET, SO_MARK);
	NUMBERS(tcp, SOL_SOCKET, SO_NO_CHECK);
	NUMBERS(udp, SOL_SOCKET, SO_BUSY_POLL);
	NUMBERS(tcp, SOL_SOCKET, SO_INCOMING_CPU);
	NUMBERS(tcp, SOL_SOCKET, SO_BUF_LOCK);
	NUMBERS(udp, SOL_SOCKET, SO_RXQ_OVFL);
	NUMBERS(udp, SOL_SOCKET, SO_SELECT_ERR_QUEUE);
	NUMBERS(udp, SOL_SOCKET, SO_TIMESTAMP);
	NUMBERS(udp, SOL_SOCKET, SO_TIMESTAMPNS);
	NUMBERS(udp, SOL_SOCKET, SO_BSDCOMPAT);
	NUMBERS(tcp, IPPROTO_TCP, TCP_MAXSEG);
	NUMBERS(tcp, IPPROTO_TCP, TCP_DEFER_ACCEPT);
	NUMBERS(tcp, IPPROTO_TCP, TCP_WINDOW_CLAMP);
	NUMBERS(tcp, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS);
	NUMBERS(tcp, IPPROTO_TCP, TCP_THIN_DUPACK);
	NUMBERS(tcp, IPPROTO_TCP, TCP_NOTSENT_LOWAT);
	NUMBERS(tcp, IPPROTO_TCP, TCP_FASTOPEN_CONNECT);
	NUMBERS(tcp, IPPROTO_TCP, TCP_INQ);
	NUMBERS(tcp, IPPROTO_TCP, TCP_LINGER2);
	NUMBERS(tcp, IPPROTO_TCP, TCP_USER_TIMEOUT);
	NUMBERS(udp, IPPROTO_IP, IP_RECVERR);
	NUMBERS(udp, IPPROTO_IP, IP_FREEBIND);
	NUMBERS(udp, IPPROTO_IP, IP_TRANSPARENT);
	NUMBERS(udp, IPPROTO_IP, IP_MINTTL);
	NUMBERS(udp, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT);
	NUMBERS(udp, IPPROTO_IP, IP_RECVOPTS);
	NUMBERS(udp, IPPROTO_IP, IP_RETOPTS);
	NUMBERS(udp, IPPROTO_IP, IP_MULTICAST_TTL);
	NUMBERS(udp, IPPROTO_IP, IP_MULTICAST_LOOP);
	NUMBERS(udp, IPPROTO_IP, IP_MULTICAST_ALL);
	NUMBERS(tcp, IPPROTO_IP, IP_MULTICAST_TTL);
	NUMBERS(udp, IPPROTO_IP, IP_HDRINCL);
	NUMBERS(udp6, IPPROTO_IPV6, IPV6_RECVERR);
	NUMBERS(udp6, IPPROTO_IPV6, IPV6_MULTICAST_HOPS);
	NUMBERS(udp6, IPPROTO_IPV6, IPV6_MULTICAST_LOOP);
	NUMBERS(udp6, IPPROTO_IPV6, IPV6_MULTICAST_IF);
	NUMBERS(udp6, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL);
	NUMBERS(udp6, IPPROTO_IPV6, IPV6_RECVPATHMTU);
	NUMBERS(udp6, IPPROTO_IPV6, IPV6_RECVRTHDR);
	NUMBERS(udp6, IPPROTO_IPV6, IPV6_RECVHOPOPTS);
	NUMBERS(udp6, IPPROTO_IPV6, IPV6_RECVDSTOPTS);
	NUMBERS(udp6, IPPROTO_IPV6, IPV6_FREEBIND);
	NUMBERS(tcp6, IPPROTO_IPV6, IPV6_MULTICAST_HOPS);
	show("SO_BPF_EXTENSIONS", tcp, SOL_SOCKET, SO_BPF_EXTENSIONS);
	show("SO_INCOMING_NAPI_ID", tcp, SOL_SOCKET, SO_INCOMING_NAPI_ID);
	show("IP_MTU", udp, IPPROTO_IP, IP_MTU);
	show("IPV6_MTU", udp6, IPPROTO_IPV6, IPV6_MTU);
	show("UDP_CORK of TCP", tcp, IPPROTO_UDP, 1);
	show("level 99", tcp, 99, 1);
	TRY(setsockopt(udp6, IPPROTO_IPV6, IPV6_RTHDR, NULL, 0));
	/* Every combination of the bits that have names, and others. */
	for (int v = 0; v < 0x2000; v++) {
		int now = -1;
		socklen_t length = sizeof now;
		if (v & 0x10f0 && v % 97)
			continue;
		errno = 0;
		int result = setsockopt(udp6, IPPROTO_IPV6, 72, &v, sizeof v), e = errno;
		MUST(getsockopt(udp6, IPPROTO_IPV6, 72, &now, &length));
		say("preferences %#x: %s, then %#x", v, result ? strerrorname_np(e) : "set", now);
	}
	char header[24] = { 0, 2, 0, 1 };
	TRY(setsockopt(udp6, IPPROTO_IPV6, IPV6_RTHDR, header, sizeof header));
	TRY(setsockopt(udp6, IPPROTO_IPV6, IPV6_RTHDR, header, 7));
	TRY(setsockopt(tcp, SOL_SOCKET, SO_DETACH_FILTER, header, sizeof header));
	TRY(setsockopt(tcp, IPPROTO_TCP, TCP_ULP, "none", 4));
	unsigned long cookie[2] = { 0 };
	socklen_t l = sizeof *cookie;
	TRY(getsockopt(tcp, SOL_SOCKET, SO_COOKIE, &cookie[0], &l));
	MUST(getsockopt(udp, SOL_SOCKET, SO_COOKIE, &cookie[1], &l));
	HOLDS(cookie[0] != 0 && cookie[0] != cookie[1]);
	int memory[9];
	l = sizeof memory;
	MUST(getsockopt(udp, SOL_SOCKET, SO_MEMINFO, memory, &l));
	say("SO_MEMINFO: %u bytes, %d of %d", l, memory[0], memory[1]);
	close(tcp), close(udp), close(tcp6), close(udp6);
}

static void as_nobody(void)
{
	MUST(setresuid(1000, 1000, 1000));
	int s = MUST(socket(AF_INET, SOCK_STREAM, 0)), one = 1;
	TRY(setsockopt(s, SOL_SOCKET, SO_MARK, &one, sizeof one));
	TRY(setsockopt(s, SOL_SOCKET, SO_BUSY_POLL, &one, sizeof one));
	TRY(setsockopt(s, SOL_SOCKET, SO_DEBUG, &one, sizeof one));
	TRY(setsockopt(s, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof one));
	TRY(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
	close(s);
}

/* Errors of messages wait with them. */
static void errors(int family, int level, int option)
{
	struct sockaddr_storage nowhere = { 0 };
	struct sockaddr_in *four = (void *)&nowhere;
	struct sockaddr_in6 *six = (void *)&nowhere;
	socklen_t length = family == AF_INET ? sizeof *four : sizeof *six;
	nowhere.ss_family = family;
	if (family == AF_INET)
		*four = v4("127.0.0.1", 9);
	else
		inet_pton(AF_INET6, "::1", &six->sin6_addr), six->sin6_port = htons(9);
	int s = MUST(socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0)), one = 1;
	TRY(sendto(s, "lost", 4, 0, (void *)&nowhere, length));
	TRY(recv(s, &one, 1, 0));
	one = 1;
	TRY(setsockopt(s, level, option, &one, sizeof one));
	TRY(sendto(s, "first", 5, 0, (void *)&nowhere, length));
	TRY(recv(s, &one, 1, 0));
	TRY(sendto(s, "second", 6, 0, (void *)&nowhere, length));
	struct pollfd p = { s, POLLIN, 0 };
	TRY(poll(&p, 1, 0));
	say("revents %#x", p.revents);
	for (int i = 0; i < 3; i++) {
		char bytes[4], control[256];
		struct iovec piece = { bytes, sizeof bytes };
		struct sockaddr_storage name = { 0 };
		struct msghdr m = { &name, sizeof name, &piece, 1, control, sizeof control, 0 };
		errno = 0;
		long n = recvmsg(s, &m, MSG_ERRQUEUE);
		if (n < 0) {
			say("no error waits: %s", strerrorname_np(errno));
			break;
		}
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		struct sock_extended_err *e = c ? (void *)CMSG_DATA(c) : NULL;
		struct sockaddr *offender = e ? SO_EE_OFFENDER(e) : NULL;
		say("%ld bytes, flags %#x, name of %u bytes is that: %s", n, m.msg_flags, m.msg_namelen,
		    !memcmp(&name, &nowhere, 8) ? "yes" : "no");
		if (e)
			say("level %d type %d, %zu bytes: errno %u origin %d type %d code %d, offender's family %d",
			    c->cmsg_level, c->cmsg_type, c->cmsg_len, e->ee_errno, e->ee_origin, e->ee_type,
			    e->ee_code, offender->sa_family);
		show("SO_ERROR", s, SOL_SOCKET, SO_ERROR);
	}
	TRY(poll(&p, 1, 0));
	MUST(sendto(s, "third", 5, 0, (void *)&nowhere, length));
	one = 0;
	MUST(setsockopt(s, level, option, &one, sizeof one));
	TRY(recv(s, &one, 1, MSG_ERRQUEUE));
	close(s);
}

static struct cmsghdr *receive(int s, struct msghdr *m, void *control, size_t room)
{
	static char bytes[64];
	static struct iovec piece;
	piece = (struct iovec){ bytes, sizeof bytes };
	*m = (struct msghdr){ .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room };
	MUST(recvmsg(s, m, 0));
	return CMSG_FIRSTHDR(m);
}

/* What comes with a message. */
static void beside(void)
{
	struct sockaddr_in a;
	int r = receiver(&a), s = MUST(socket(AF_INET, SOCK_DGRAM, 0)), one = 1;
	char control[512];
	struct msghdr m;
	struct timespec before, after, t;
	for (int i = 0; i < 3; i++) {
		int option = i == 0 ? SO_TIMESTAMP : i == 1 ? SO_TIMESTAMPNS : SO_TIMESTAMPING;
		int value = i == 2 ? SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE : 1, none = 0;
		MUST(setsockopt(r, SOL_SOCKET, option, &value, sizeof value));
		clock_gettime(CLOCK_REALTIME, &before);
		struct cmsghdr *c = NULL;
		/* Linux begins to take the time a while after a program asks for it. */
		for (int tries = 0; !c && tries < 300000; tries++) {
			if (tries)
				sleep_ms(1);
			MUST(sendto(s, "x", 1, 0, (void *)&a, sizeof a));
			c = receive(r, &m, control, sizeof control);
		}
		clock_gettime(CLOCK_REALTIME, &after);
		if (!c) {
			say("no time comes");
			continue;
		}
		memcpy(&t, CMSG_DATA(c), sizeof t);
		if (i == 0)
			t.tv_nsec = t.tv_nsec * 1000 + 999;
		long long nanos = t.tv_sec * 1000000000LL + t.tv_nsec;
		say("type %d of %zu bytes, between before and after: %s", c->cmsg_type, c->cmsg_len,
		    nanos >= before.tv_sec * 1000000000LL + before.tv_nsec &&
		    nanos <= after.tv_sec * 1000000000LL + after.tv_nsec + 1000 ? "yes" : "no");
		MUST(setsockopt(r, SOL_SOCKET, option, &none, sizeof none));
	}
	int mark = 77;
	if (!setsockopt(r, SOL_SOCKET, SO_RCVMARK, &one, sizeof one)) {
		MUST(setsockopt(s, SOL_SOCKET, SO_MARK, &mark, sizeof mark));
		MUST(sendto(s, "x", 1, 0, (void *)&a, sizeof a));
		struct cmsghdr *c = receive(r, &m, control, sizeof control);
		say("type %d: %d", c ? c->cmsg_type : -1, c ? *(int *)CMSG_DATA(c) : -1);
	}
	close(r), close(s);
	int pair[2];
	connected(pair);
	MUST(setsockopt(pair[1], IPPROTO_TCP, TCP_INQ, &one, sizeof one));
	char many[100] = { 0 };
	MUST(send(pair[0], many, sizeof many, 0));
	struct cmsghdr *c = receive(pair[1], &m, control, sizeof control);
	say("level %d type %d: %d", c ? c->cmsg_level : -1, c ? c->cmsg_type : -1, c ? *(int *)CMSG_DATA(c) : -1);
	/* The C library's structure ends before the bytes that came. */
	struct { struct tcp_info tcp; unsigned long rates[2], acked, received; } info = { 0 };
	socklen_t l = sizeof info;
	MUST(getsockopt(pair[1], IPPROTO_TCP, TCP_INFO, &info, &l));
	say("state %d, received %lu", info.tcp.tcpi_state, info.received);
	MUST(shutdown(pair[0], SHUT_WR));
	struct pollfd p = { pair[1], POLLRDHUP, 0 };
	MUST(poll(&p, 1, 600000));
	MUST(getsockopt(pair[1], IPPROTO_TCP, TCP_INFO, &info, &l));
	say("the other side ended: state %d", info.tcp.tcpi_state);
	close(pair[0]), close(pair[1]);
}

/* Who sent a message is told if either side asked for it when it was sent. */
static void credentials(void)
{
	for (int i = 0; i < 3; i++) {
		int pair[2], one = 1;
		char control[64];
		struct msghdr m;
		MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
		if (i > 0)
			MUST(setsockopt(pair[i - 1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one));
		MUST(send(pair[0], "x", 1, 0));
		MUST(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one));
		struct cmsghdr *c = receive(pair[1], &m, control, sizeof control);
		struct ucred *who = c ? (void *)CMSG_DATA(c) : NULL;
		if (who)
			say("%s asked: this process %s, user %u", i == 0 ? "none" : i == 1 ? "sender" : "receiver",
			    who->pid == getpid() ? "yes" : "no", who->uid);
		close(pair[0]), close(pair[1]);
	}
}

int main(void)
{
	on_one_cpu();
	kept();
	IN_CHILD("nobody", as_nobody());
	errors(AF_INET, IPPROTO_IP, IP_RECVERR);
	errors(AF_INET6, IPPROTO_IPV6, IPV6_RECVERR);
	beside();
	credentials();
	return 0;
}
