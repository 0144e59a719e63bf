#include <netinet/in.h>
#include <sys/socket.h>

/* Waits until what was sent has arrived, and answers to it. A busy Linux hands packets on in a thread of each CPU, in
   their order: a datagram that is sent behind them on the same CPU arrives behind them. The program
   has one CPU for that. */
static inline void delivered(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t l = sizeof a;
	char b;
	int s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	MUST(bind(s, (void *)&a, l));
	MUST(getsockname(s, (void *)&a, &l));
	MUST(connect(s, (void *)&a, l));
	/* Once more for each answer to an answer: a connection takes three packets. */
	for (int round = 0; round < 4; round++) {
		MUST(send(s, "", 1, 0));
		MUST(recv(s, &b, 1, 0));
	}
	close(s);
}
