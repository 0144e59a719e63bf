/* Descriptors that tell by signals of each other while their owners, and they, come and go. */
#include "say.h"
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { SHARED = 8 };

static int shared[SHARED][2];
static unsigned state;

static unsigned any(unsigned below)
{
	state = state * 1103515245 + 12345;
	return state / 65536 % below;
}

static void pair(int p[2])
{
	char name[64];
	int zero = 0, n = 0;
	switch (any(4)) {
	case 0:
		MUST(pipe2(p, O_NONBLOCK));
		break;
	case 1:
		p[0] = MUST(open("/tmp/storm", O_RDWR | O_NONBLOCK));
		p[1] = MUST(open("/tmp/storm", O_WRONLY | O_NONBLOCK));
		break;
	case 2:
		MUST(socketpair(AF_UNIX, (any(2) ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK, 0, p));
		break;
	default:
		p[0] = MUST(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK));
		MUST(ioctl(p[0], TIOCSPTLCK, &zero));
		MUST(ioctl(p[0], TIOCGPTN, &n));
		snprintf(name, sizeof name, "/dev/pts/%d", n);
		p[1] = MUST(open(name, O_RDWR | O_NOCTTY | O_NONBLOCK));
	}
}

static void names(int fd)
{
	struct f_owner_ex owner = { any(3), any(2) ? getpid() : getppid() };
	if (owner.type == F_OWNER_PGRP)
		owner.pid = getpgrp();
	fcntl(fd, F_SETOWN_EX, &owner);
	fcntl(fd, F_SETSIG, any(3) == 0 ? 0 : SIGRTMIN + any(5));
	fcntl(fd, F_SETFL, O_NONBLOCK | (any(4) ? O_ASYNC : 0));
}

static void moves(int fd)
{
	char b[300] = "0123456789\n";
	if (any(2))
		read(fd, b, sizeof b);
	else
		write(fd, b, 1 + any(sizeof b));
}

static void one(int rounds)
{
	struct timespec none = { 0, 0 };
	sigset_t all;
	sigfillset(&all);
	sigdelset(&all, SIGTERM);
	for (int n = 0; n < rounds; n++) {
		int p[2];
		pair(p);
		for (int k = 0; k < 2; k++)
			names(p[k]);
		names(shared[any(SHARED)][any(2)]);
		for (int k = 0; k < 8; k++) {
			moves(p[any(2)]);
			moves(shared[any(SHARED)][any(2)]);
		}
		if (any(8) == 0 && fork() == 0) {
			names(p[0]);
			moves(p[1]);
			_exit(0);
		}
		close(p[any(2)]);
		close(p[0]);
		close(p[1]);
		while (sigtimedwait(&all, NULL, &none) > 0)
			;
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}

int main(int argc, char **argv)
{
	int workers = argc > 1 ? atoi(argv[1]) : 8, rounds = argc > 2 ? atoi(argv[2]) : 500;
	sigset_t all;
	sigfillset(&all);
	sigdelset(&all, SIGTERM);
	sigprocmask(SIG_BLOCK, &all, NULL);
	setpgid(0, 0);
	mkdir("/tmp", 0777);
	MUST(mkfifo("/tmp/storm", 0600));
	for (int n = 0; n < SHARED; n++) {
		state = n * 77;
		pair(shared[n]);
	}
	for (int n = 0; n < workers; n++)
		if (MUST(fork()) == 0) {
			state = n + 1;
			one(rounds);
			_exit(0);
		}
	int status, bad = 0, ended = 0;
	while (wait(&status) > 0) {
		ended++;
		bad += status != 0;
	}
	say("%d ended, %d went wrong", ended, bad);
	return 0;
}
