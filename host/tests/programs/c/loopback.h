/* Addresses of sockets over the loopback interface. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static inline struct sockaddr_in v4(const char *ip, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	inet_pton(AF_INET, ip, &a.sin_addr);
	return a;
}

static inline struct sockaddr_in6 v6(const char *ip, int port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	inet_pton(AF_INET6, ip, &a.sin6_addr);
	return a;
}

/* Returns the port that the socket is bound to. It stands at the same place in both addresses. */
static inline int port_of(int s)
{
	struct sockaddr_in6 a;
	socklen_t l = sizeof a;
	MUST(getsockname(s, (void *)&a, &l));
	return ntohs(a.sin6_port);
}
