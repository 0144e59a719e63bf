/* Pairs of sockets that keep message boundaries. */
#include "say.h"
#include <poll.h>
#include <sys/socket.h>

static char big[300000];

static void on_pipe(int signal)
{
	(void)signal;
	say("SIGPIPE");
}

static int ready(int fd)
{
	struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
	poll(&p, 1, 0);
	return p.revents;
}

int main(void)
{
	int s[2], type;
	char b[100], control[100];
	socklen_t size = sizeof type;
	signal(SIGPIPE, on_pipe);
	TRY(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s));
	TRY(fcntl(s[0], F_GETFD));
	TRY(getsockopt(s[0], SOL_SOCKET, SO_TYPE, &type, &size));
	say("type %d", type);
	TRY(write(s[0], "hello", 5));
	TRY(send(s[0], "worlds", 6, MSG_EOR));
	TRY(send(s[0], "", 0, 0));
	TRY(write(s[0], "abcdef", 6));
	TRY(write(s[0], "ghijkl", 6));
	say("ready %#x %#x", ready(s[0]), ready(s[1]));
	TRY(read(s[1], b, 0));
	TRY(read(s[1], b, 100));
	TRY(read(s[1], b, 2));
	TRY(recv(s[1], b, 100, 0));
	struct iovec v = {b, 3};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	TRY(recvmsg(s[1], &m, 0));
	say("flags %#x control %zu", m.msg_flags, (size_t)m.msg_controllen);
	TRY(recv(s[1], b, 2, MSG_TRUNC));
	TRY(recv(s[1], b, 2, MSG_DONTWAIT));
	TRY(send(s[0], big, sizeof big, 0));
	TRY(send(s[0], big, 200000, 0));
	TRY(recv(s[1], big, sizeof big, 0));
	/* empty ones are bounded too, though by how many is the kernel's own affair */
	int n = 0;
	while (n < 100000 && send(s[0], "", 0, MSG_DONTWAIT) == 0)
		n++;
	say("bounded %d", n > 10 && n < 100000);
	TRY(send(s[0], "", 0, MSG_DONTWAIT));
	say("ready %#x", ready(s[0]));
	while (n-- > 0)
		recv(s[1], b, 1, 0);
	say("ready %#x", ready(s[0]));
	TRY(send(s[0], (char *)8, 3, 0));
	pid_t child = fork();
	if (child == 0) {
		usleep(50000);
		_exit(write(s[0], "late", 4) != 4);
	}
	TRY(recv(s[1], b, 100, 0));
	waitpid(child, NULL, 0);
	TRY(shutdown(s[0], SHUT_WR));
	say("ready %#x", ready(s[1]));
	TRY(recv(s[1], b, 100, 0));
	TRY(send(s[0], "x", 1, 0));
	TRY(send(s[1], "y", 1, 0));
	TRY(recv(s[0], b, 100, 0));
	close(s[0]);
	say("ready %#x", ready(s[1]));
	TRY(read(s[1], b, 100));
	TRY(write(s[1], "x", 1));
	close(s[1]);
	TRY(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, s));
	TRY(write(s[0], "hello", 5));
	TRY(write(s[0], "again", 5));
	TRY(read(s[1], b, 2));
	TRY(read(s[1], b, 9));
	TRY(read(s[1], b, 9));
	TRY(socketpair(AF_UNIX, 4, 0, s));
	return 0;
}
