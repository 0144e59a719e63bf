/* Processes that connect, send, pass descriptors and close at random, over AF_UNIX, TCP and UDP, by turns
 * with bytes that say whether they are right: socket_storm PROCESSES ROUNDS. Nothing is left at the end. */
#include "say.h"
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

static unsigned seed;

static unsigned dice(unsigned sides)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % sides;
}

struct end {
	struct sockaddr_storage a;
	socklen_t l;
	int family, type;
};

/* Where the server of this number is. */
static struct end place(int n)
{
	struct end e = { .l = sizeof(struct sockaddr_in) };
	if (n % 3 == 0) {
		struct sockaddr_in *i = (void *)&e.a;
		i->sin_family = e.family = AF_INET;
		i->sin_addr.s_addr = htonl(0x7f000001);
		i->sin_port = htons(20000 + n);
		e.type = SOCK_STREAM;
	} else {
		struct sockaddr_un *u = (void *)&e.a;
		u->sun_family = e.family = AF_UNIX;
		e.l = 2 + 1 + snprintf(u->sun_path + 1, 100, "storm %d", n);
		e.type = n % 3 == 1 ? SOCK_STREAM : SOCK_SEQPACKET;
	}
	return e;
}

static int pass(int s, int fd)
{
	char control[CMSG_SPACE(4)] = "", byte = 'f';
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_LEN(4) };
	struct cmsghdr *c = (void *)control;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(4);
	memcpy(CMSG_DATA(c), &fd, 4);
	return sendmsg(s, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int wrong;

/* Echoes what comes, for a while. */
static void serve(int listener)
{
	int s = accept4(listener, 0, 0, dice(2) ? SOCK_NONBLOCK : 0);
	if (s == -1)
		return;
	for (unsigned i = dice(4); i > 0; i--) {
		char b[3000], control[CMSG_SPACE(4 * 4)];
		struct iovec io = { b, sizeof b };
		struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
		struct pollfd p = { s, POLLIN, 0 };
		if (poll(&p, 1, 20) < 1)
			break;
		ssize_t n = recvmsg(s, &m, MSG_DONTWAIT);
		if (n <= 0)
			break;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
			for (unsigned k = 0; k < (c->cmsg_len - CMSG_LEN(0)) / 4; k++)
				close(((int *)CMSG_DATA(c))[k]);
		send(s, b, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	close(s);
}

static void call(int n)
{
	struct end e = place(n);
	int s = MUST(socket(e.family, e.type | (dice(2) ? SOCK_NONBLOCK : 0), 0));
	struct timeval soon = { 0, 20000 };
	MUST(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	MUST(setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon));
	connect(s, (void *)&e.a, e.l);
	for (unsigned i = dice(5); i > 0; i--) {
		char b[2000], got[2000];
		unsigned length = 1 + dice(sizeof b);
		memset(b, length, length);
		ssize_t sent = send(s, b, length, MSG_NOSIGNAL);
		if (e.family == AF_UNIX && dice(3) == 0) {
			int p[2];
			MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
			if (dice(2))
				pass(p[0], p[1]);
			if (dice(2))
				pass(p[0], s);
			pass(s, p[dice(2)]);
			close(p[0]);
			close(p[1]);
		}
		if (dice(4) == 0)
			shutdown(s, dice(3));
		if (sent > 0 && dice(2)) {
			ssize_t n = recv(s, got, sizeof got, 0);
			for (ssize_t k = 1; k < n && got[k] != 'f'; k++)
				wrong += e.type == SOCK_SEQPACKET && got[k] != got[0];
		}
	}
	close(s);
}

int main(int argc, char **argv)
{
	int processes = atoi(argv[1]), rounds = atoi(argv[2]);
	signal(SIGPIPE, SIG_IGN);
	for (int n = 0; n < processes; n++)
		if (MUST(fork()) == 0) {
			seed = n * 7919 + 1;
			struct end e = place(n);
			int on = 1, s = MUST(socket(e.family, e.type | SOCK_NONBLOCK, 0));
			MUST(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
			MUST(bind(s, (void *)&e.a, e.l));
			MUST(listen(s, dice(5)));
			struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001) };
			int u = MUST(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
			for (int i = 0; i < rounds; i++) {
				a.sin_port = htons(21000 + dice(processes));
				if (dice(20) == 0)
					bind(u, (void *)&a, sizeof a);
				char b[100];
				sendto(u, b, dice(100), 0, (void *)&a, sizeof a);
				recv(u, b, sizeof b, 0);
				if (dice(2))
					call(dice(processes));
				else
					serve(s);
				if (dice(50) == 0) {
					close(s);
					s = MUST(socket(e.family, e.type | SOCK_NONBLOCK, 0));
					MUST(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
					while (bind(s, (void *)&e.a, e.l) == -1)
						sleep_ms(1);
					MUST(listen(s, dice(5)));
				}
			}
			_exit(wrong != 0);
		}
	int bad = 0, status;
	for (int n = 0; n < processes; n++) {
		MUST(wait(&status));
		bad += status != 0;
	}
	/* Every name and port is free again once nothing holds them. */
	int taken = 0;
	for (int n = 0; n < processes; n++) {
		struct end e = place(n);
		int on = 1, s = MUST(socket(e.family, e.type, 0));
		MUST(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
		taken += bind(s, (void *)&e.a, e.l) == -1;
		close(s);
	}
	/* What was on its way to itself is gone: as many may be on their way as ever. */
	int left = 1;
	for (int i = 0; left && i < 240; i++) {
		int s[2], n = 0;
		MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
		int large = 1 << 20;
		setsockopt(s[0], SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large);
		while (n < 1000 && pass(s[0], 1) == 1)
			n++;
		left = n < 1000;
		close(s[0]);
		close(s[1]);
		if (left)
			sleep_ms(500);
	}
	say("%d processes, %d went wrong, %d names are taken, descriptors are left: %d", processes, bad, taken, left);
	return 0;
}
