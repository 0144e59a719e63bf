/* Echo requests over the loopback interface, by sockets of messages and by raw ones. */
#include "say.h"
#include "blocked.h"
#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/socket.h>
#include "after_delivery.h"

#ifndef ICMP_FILTER
#define ICMP_FILTER 1
#endif

static long next(int s, void *bytes, size_t room, int comes)
{
	struct pollfd p = { s, POLLIN, 0 };
	poll(&p, 1, comes ? 600000 : 0);
	return recv(s, bytes, room, MSG_DONTWAIT);
}

static int sum_is_right(const void *packet, long length)
{
	const unsigned char *b = packet;
	unsigned sum = 0;
	for (long i = 0; i < length; i++)
		sum += i % 2 ? b[i] : b[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

static void messages(void)
{
	errno = 0;
	int s = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
	say("with no groups: %s", s < 0 ? strerrorname_np(errno) : "allowed");
	int f = MUST(open("/proc/sys/net/ipv4/ping_group_range", O_RDWR));
	char range[40] = { 0 };
	MUST(pread(f, range, sizeof range - 1, 0));
	say("groups: %s", range);
	TRY(write(f, "nonsense", 8));
	TRY(pwrite(f, "0 100", 5, 0));
	MUST(pread(f, range, sizeof range - 1, 0));
	say("groups: %s", range);
	s = MUST(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
	int t = MUST(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP)), one = 1;
	int protocol;
	socklen_t l = sizeof protocol;
	MUST(getsockopt(s, SOL_SOCKET, SO_PROTOCOL, &protocol, &l));
	say("protocol %d", protocol);
	MUST(setsockopt(s, IPPROTO_IP, IP_RECVTTL, &one, sizeof one));
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, from = { 0 };
	struct { struct icmphdr head; char data[9]; } packet = { .head.type = ICMP_ECHO, .data = "the data" }, got;
	packet.head.un.echo.sequence = htons(7);
	packet.head.un.echo.id = htons(1);
	TRY(sendto(s, &packet, sizeof packet, 0, (void *)&a, sizeof a));
	struct pollfd p = { s, POLLIN, 0 };
	poll(&p, 1, 600000);
	char control[64];
	struct iovec piece = { &got, sizeof got };
	struct msghdr m = { &from, sizeof from, &piece, 1, control, sizeof control, 0 };
	long n = recvmsg(s, &m, MSG_DONTWAIT);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	say("%ld bytes of type %d, sequence %d, %s, from port %d, TTL %d", n, got.head.type,
	    ntohs(got.head.un.echo.sequence), got.data, ntohs(from.sin_port), c ? *(int *)CMSG_DATA(c) : -1);
	l = sizeof from;
	MUST(getsockname(s, (void *)&from, &l));
	HOLDS(got.head.un.echo.id == from.sin_port);
	HOLDS(sum_is_right(&got, n));
	say("the other socket has nothing: %s", next(t, &got, sizeof got, 0) < 0 ? "yes" : "NO");
	TRY(connect(t, (void *)&a, sizeof a));
	TRY(send(t, &packet, sizeof packet, 0));
	say("connected: %ld", next(t, &got, sizeof got, 1));
	TRY(send(t, &packet, 7, 0));
	packet.head.type = ICMP_ECHOREPLY;
	TRY(send(t, &packet, sizeof packet, 0));
	a.sin_addr.s_addr = htonl(0x0a000001);
	TRY(sendto(s, &packet, sizeof packet, 0, (void *)&a, sizeof a));
	struct sockaddr_in named = { .sin_family = AF_INET, .sin_port = htons(77) };
	int u = MUST(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP)), v = MUST(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
	TRY(bind(u, (void *)&named, sizeof named));
	TRY(bind(v, (void *)&named, sizeof named));
	close(s), close(t), close(u), close(v);
	s = MUST(socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6));
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct icmp6_hdr six = { .icmp6_type = ICMP6_ECHO_REQUEST }, back;
	TRY(sendto(s, &six, sizeof six, 0, (void *)&a6, sizeof a6));
	n = next(s, &back, sizeof back, 1);
	say("version 6: %ld bytes of type %d", n, back.icmp6_type);
	close(s);
	MUST(pwrite(f, "1 0", 3, 0));
	close(f);
}

static void raw(void)
{
	int s = MUST(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct { struct icmphdr head; char data[4]; } packet = { .head.type = ICMP_ECHO, .data = "abc" };
	packet.head.un.echo.id = htons(99);
	unsigned sum = 0;
	for (unsigned i = 0; i < sizeof packet; i += 2)
		sum += *(unsigned short *)((char *)&packet + i);
	packet.head.checksum = ~((sum & 0xffff) + (sum >> 16));
	struct { struct iphdr ip; struct icmphdr head; char data[4]; } got;
	TRY(sendto(s, &packet, sizeof packet, 0, (void *)&a, sizeof a));
	for (int i = 0; i < 2; i++) {
		long n = next(s, &got, sizeof got, 1);
		say("%ld bytes, version %d, %d words, whole %d, TTL %d, protocol %d, type %d, identifier %d, %s", n,
		    got.ip.version, got.ip.ihl, ntohs(got.ip.tot_len), got.ip.ttl, got.ip.protocol, got.head.type,
		    ntohs(got.head.un.echo.id), got.data);
		HOLDS(sum_is_right(&got, 20) && sum_is_right(&got.head, 12));
	}
	unsigned filter = 1 << ICMP_ECHO, shown = 0;
	socklen_t l = sizeof shown;
	TRY(setsockopt(s, 255, ICMP_FILTER, &filter, sizeof filter));
	TRY(getsockopt(s, 255, ICMP_FILTER, &shown, &l));
	HOLDS(shown == filter);
	unsigned other = 0xffffffff;
	TRY(setsockopt(s, 255, ICMP_FILTER, &other, 3));
	TRY(getsockopt(s, 255, ICMP_FILTER, &shown, &l));
	say("filter %#x", shown);
	TRY(setsockopt(s, 255, ICMP_FILTER, &filter, sizeof filter));
	MUST(sendto(s, &packet, sizeof packet, 0, (void *)&a, sizeof a));
	say("%ld", next(s, &got, sizeof got, 1));
	say("type %d", got.head.type);
	say("no more: %s", next(s, &got, sizeof got, 0) < 0 ? "yes" : "NO");
	close(s);
	s = MUST(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6));
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct icmp6_hdr six = { .icmp6_type = ICMP6_ECHO_REQUEST }, back;
	struct icmp6_filter f6;
	ICMP6_FILTER_SETBLOCKALL(&f6);
	ICMP6_FILTER_SETPASS(ICMP6_ECHO_REPLY, &f6);
	TRY(setsockopt(s, IPPROTO_ICMPV6, ICMP6_FILTER, &f6, sizeof f6));
	TRY(sendto(s, &six, sizeof six, 0, (void *)&a6, sizeof a6));
	long n = next(s, &back, sizeof back, 1);
	say("version 6: %ld bytes of type %d", n, back.icmp6_type);
	close(s);
}

int main(void)
{
	on_one_cpu();
	messages();
	raw();
	return 0;
}
