/* What signals tell of descriptors: whom, by which signal, of what. */
#include "say.h"
#include "blocked.h"
#include "delivered.h"
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/inotify.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17
#endif
#define CHOSEN (SIGRTMIN + 3)

static sigset_t told;

static const char *code_name(int code)
{
	static const char *names[] = { "0", "IN", "OUT", "MSG", "ERR", "PRI", "HUP" };
	static char text[16];
	if (code >= 0 && code <= 6)
		return names[code];
	snprintf(text, sizeof text, "%#x", code);
	return text;
}

/* Says all signals that wait, in their order; `once`: each kind once. The first is waited for
   `ms` milliseconds. */
static void say_told_within(long ms, const char *what, int fd, int other, int once)
{
	siginfo_t info;
	char line[600];
	int n = snprintf(line, sizeof line, "%s:", what), last_code = -1, last_signal = -1;
	struct timespec patience = { ms / 1000, ms % 1000 * 1000000 };
	for (int found = 0; found < 12; found++) {
		int s = sigtimedwait(&told, &info, &patience);
		patience = (struct timespec){ 0, 0 };
		if (s == -1)
			break;
		if (once && s == last_signal && info.si_code == last_code)
			continue;
		last_signal = s;
		last_code = info.si_code;
		if (info.si_code == SI_KERNEL)
			n += snprintf(line + n, sizeof line - n, " %d by the kernel, %d %d;", s, info.si_pid, info.si_uid);
		else
			n += snprintf(line + n, sizeof line - n, " %d %s of %s, %#lx;", s, code_name(info.si_code),
				      info.si_fd == fd ? "it" : info.si_fd == other ? "the other" : "ANOTHER",
				      (long)info.si_band);
	}
	say("%s", line);
}

/* Where no signal is expected, or all have been sent. */
static void say_told(const char *what, int fd, int other, int once)
{
	say_told_within(300, what, fd, other, once);
}

/* Where a signal is expected that Linux sends by a thread of its own. */
static void say_told_later(const char *what, int fd, int other, int once)
{
	say_told_within(120000, what, fd, other, once);
}

static void quiet(void)
{
	struct timespec none = { 0, 0 };
	for (int i = 0; i < 1000 && sigtimedwait(&told, NULL, &none) != -1; i++)
		;
}

static void wants(int fd, int sig)
{
	MUST(fcntl(fd, F_SETOWN, getpid()));
	MUST(fcntl(fd, F_SETSIG, sig));
	MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC));
}

static void say_owner(const char *what, int fd)
{
	struct f_owner_ex owner = { 77, 77 };
	int r = fcntl(fd, F_GETOWN_EX, &owner);
	int own = fcntl(fd, F_GETOWN);
	const char *who = owner.pid == 0 ? "none" : owner.pid == getpid() ? "me" : "another";
	say("%s: %d, type %d, %s, getown %s, signal %d", what, r, owner.type, who,
	    own == 0 ? "0" : own == getpid() ? "me" : own == -getpid() ? "-me" : "another", fcntl(fd, F_GETSIG));
}

static void names(void)
{
	int p[2];
	unsigned ids[2] = { 7, 7 };
	struct f_owner_ex owner;
	MUST(pipe(p));
	say_owner("none named", p[0]);
	TRY(fcntl(p[0], F_SETOWN, 99999999));
	TRY(fcntl(p[0], F_SETOWN, -99999999));
	TRY(fcntl(p[0], F_SETOWN, 0x80000000));
	TRY(fcntl(p[0], F_SETOWN, getpid()));
	say_owner("a process", p[0]);
	TRY(fcntl(p[0], F_GETOWNER_UIDS, ids));
	say("users %u %u", ids[0], ids[1]);
	TRY(fcntl(p[0], F_SETOWN, 0));
	say_owner("none again", p[0]);
	setpgid(0, 0);
	TRY(fcntl(p[0], F_SETOWN, -getpid()));
	say_owner("a group", p[0]);
	owner = (struct f_owner_ex){ F_OWNER_TID, syscall(SYS_gettid) };
	TRY(fcntl(p[0], F_SETOWN_EX, &owner));
	say_owner("a thread", p[0]);
	owner = (struct f_owner_ex){ 3, getpid() };
	TRY(fcntl(p[0], F_SETOWN_EX, &owner));
	owner = (struct f_owner_ex){ F_OWNER_PID, -getpid() };
	TRY(fcntl(p[0], F_SETOWN_EX, &owner));
	owner = (struct f_owner_ex){ F_OWNER_PGRP, 99999999 };
	TRY(fcntl(p[0], F_SETOWN_EX, &owner));
	owner = (struct f_owner_ex){ F_OWNER_PGRP, 0 };
	TRY(fcntl(p[0], F_SETOWN_EX, &owner));
	say_owner("no group", p[0]);
	TRY(fcntl(p[0], F_SETOWN_EX, (void *)8));
	TRY(fcntl(p[0], F_GETOWN_EX, (void *)8));
	TRY(fcntl(p[0], F_GETOWNER_UIDS, (void *)8));
	TRY(fcntl(p[0], F_SETSIG, 65));
	TRY(fcntl(p[0], F_SETSIG, -1));
	TRY(fcntl(p[0], F_SETSIG, 64));
	say_owner("signal 64", p[0]);
	TRY(fcntl(p[0], F_SETSIG, 0));
	int copy = dup(p[0]);
	TRY(fcntl(copy, F_SETOWN, getpid()));
	say_owner("by another descriptor", p[0]);
	TRY(fcntl(p[0], F_SETFL, O_ASYNC));
	say("flags %#x", fcntl(copy, F_GETFL));
	TRY(fcntl(p[0], F_SETFL, O_NONBLOCK));
	say("flags %#x", fcntl(copy, F_GETFL));
	int on = 1;
	TRY(ioctl(p[0], FIOASYNC, &on));
	say("flags %#x", fcntl(copy, F_GETFL));
	on = 0;
	TRY(ioctl(p[0], FIOASYNC, &on));
	say("flags %#x", fcntl(copy, F_GETFL));
	TRY(ioctl(p[0], FIOASYNC, (void *)8));
	TRY(ioctl(p[0], FIOSETOWN, &on));
	pid_t gone = fork();
	if (gone == 0)
		_exit(0);
	TRY(fcntl(p[0], F_SETOWN, gone) == 0);
	waitpid(gone, NULL, 0);
	say_owner("who has ended", p[0]);
	/* Files of which no signal tells. */
	int f = MUST(open("/tmp/plain", O_RDWR | O_CREAT, 0600)), e = eventfd(0, 0);
	on = 1;
	TRY(fcntl(f, F_SETFL, O_ASYNC));
	say("flags %#x", fcntl(f, F_GETFL));
	TRY(ioctl(f, FIOASYNC, &on));
	TRY(fcntl(f, F_SETOWN, getpid()));
	say_owner("a plain file", f);
	TRY(fcntl(e, F_SETFL, O_ASYNC));
	say("flags %#x", fcntl(e, F_GETFL));
	TRY(ioctl(e, FIOASYNC, &on));
	int place = MUST(open("/tmp/plain", O_PATH));
	TRY(fcntl(place, F_SETOWN, getpid()));
	TRY(fcntl(place, F_GETOWN));
	int a = MUST(open("/tmp/plain", O_RDWR | O_ASYNC));
	say("opened with it: flags %#x", fcntl(a, F_GETFL));
	TRY(ioctl(a, FIOASYNC, &on));
}

static void pipes(void)
{
	int p[2];
	char b[70000] = "";
	MUST(pipe2(p, O_NONBLOCK));
	MUST(fcntl(p[0], F_SETFL, O_NONBLOCK | O_ASYNC));
	write(p[1], b, 1);
	say_told("none is named", p[0], p[1], 0);
	MUST(fcntl(p[0], F_SETOWN, getpid()));
	write(p[1], b, 1);
	say_told("written", p[0], p[1], 0);
	MUST(fcntl(p[0], F_SETSIG, CHOSEN));
	write(p[1], b, 1);
	write(p[1], b, 1);
	say_told("written twice", p[0], p[1], 0);
	wants(p[1], CHOSEN);
	read(p[0], b, 10);
	say_told("read", p[0], p[1], 0);
	TRY(read(p[0], b, 10));
	say_told("read of nothing", p[0], p[1], 0);
	TRY(read(p[0], b, 0));
	TRY(write(p[1], b, 0));
	say_told("nothing", p[0], p[1], 0);
	TRY(write(p[1], b, 65536));
	say_told("filled", p[0], p[1], 0);
	TRY(write(p[1], b, 1));
	say_told("full", p[0], p[1], 0);
	MUST(fcntl(p[0], F_SETSIG, SIGUSR2));
	read(p[0], b, 65536);
	quiet();
	write(p[1], b, 1);
	say_told("SIGUSR2", p[0], p[1], 0);
	MUST(fcntl(p[0], F_SETSIG, SIGCHLD));
	write(p[1], b, 1);
	say_told("SIGCHLD", p[0], p[1], 0);
	MUST(fcntl(p[0], F_SETSIG, SIGIO));
	write(p[1], b, 1);
	say_told("SIGIO", p[0], p[1], 0);
	int copy = dup(p[0]);
	MUST(fcntl(p[0], F_SETSIG, CHOSEN));
	close(p[0]);
	write(p[1], b, 1);
	say_told("the descriptor is closed, its copy is not", p[0], p[1], 0);
	close(p[1]);
	say_told("the writer is gone", p[0], p[1], 0);
	close(copy);
	say_told("all is closed", p[0], p[1], 0);
	MUST(pipe(p));
	wants(p[1], CHOSEN);
	close(p[0]);
	say_told("the reader is gone", p[0], p[1], 0);
	TRY(write(p[1], b, 1));
	say_told("it is written", p[0], p[1], 0);
	close(p[1]);
	MUST(mkfifo("/tmp/fifo", 0600));
	int f = MUST(open("/tmp/fifo", O_RDWR));
	wants(f, CHOSEN);
	write(f, b, 1);
	say_told("a FIFO of both sides is written", f, -1, 0);
	read(f, b, 1);
	say_told("and read", f, -1, 0);
	MUST(fcntl(f, F_SETFL, 0));
	write(f, b, 1);
	say_told("not asked for any more", f, -1, 0);
	close(f);
	int q[2];
	MUST(pipe2(p, O_NONBLOCK));
	MUST(pipe2(q, O_NONBLOCK));
	wants(q[0], CHOSEN);
	write(p[1], b, 5000);
	quiet();
	TRY(splice(p[0], NULL, q[1], NULL, 5000, 0));
	say_told("spliced", q[0], -1, 1);
	int s = MUST(signalfd(-1, &told, SFD_NONBLOCK));
	write(q[1], b, 1);
	struct signalfd_siginfo r;
	TRY(read(s, &r, sizeof r));
	say("signalfd: %d, code %d, fd %s, band %#x", r.ssi_signo - SIGRTMIN, r.ssi_code,
	    (int)r.ssi_fd == q[0] ? "it" : "ANOTHER", r.ssi_band);
	close(s);
}

/* Who sends may be another than who is told; by whom it is allowed is who named. */
static void others(void)
{
	int p[2], ready[2];
	char b = 0;
	MUST(pipe(p));
	MUST(pipe(ready));
	fcntl(p[0], F_SETFL, O_ASYNC);
	for (int named_by_root = 0; named_by_root < 2; named_by_root++) {
		for (int user = 0; user < 3; user++) {
			pid_t c = MUST(fork());
			if (c == 0) {
				if (user)
					MUST(setresuid(user == 1 ? 1000 : 1001, user == 1 ? 1001 : 1000, user == 1 ? 1000 : 1001));
				sigset_t over;
				struct timespec t = { 0, 400000000 };
				sigemptyset(&over);
				sigaddset(&over, SIGTERM);
				sigprocmask(SIG_BLOCK, &over, NULL);
				write(ready[1], &b, 1);
				sigwaitinfo(&over, NULL);
				_exit(sigtimedwait(&told, NULL, &t) == SIGIO);
			}
			read(ready[0], &b, 1);
			if (named_by_root)
				MUST(fcntl(p[0], F_SETOWN, c));
			else
				IN_CHILD("who names", MUST(setresuid(1000, 1000, 1000)); MUST(fcntl(p[0], F_SETOWN, c)));
			write(p[1], &b, 1);
			/* From now on who is to be told has some time. */
			MUST(kill(c, SIGTERM));
			int status;
			MUST(waitpid(c, &status, 0));
			say("%s named, %s is %s", named_by_root ? "root" : "1000",
			    user == 0 ? "root" : user == 1 ? "1000 by real user" : "1000 by effective user",
			    WEXITSTATUS(status) ? "told" : "not told");
		}
	}
	/* A group. */
	pid_t one = MUST(fork());
	if (one == 0) {
		setpgid(0, 0);
		pid_t two = fork();
		sigset_t io;
		sigemptyset(&io);
		sigaddset(&io, SIGIO);
		write(ready[1], &b, 1);
		struct timespec t = { 300, 0 };
		int got = sigtimedwait(&io, NULL, &t) == SIGIO, status = 1;
		if (two == 0)
			_exit(!got);
		waitpid(two, &status, 0);
		_exit(got && status == 0 ? 0 : 1);
	}
	read(ready[0], &b, 1);
	read(ready[0], &b, 1);
	MUST(fcntl(p[0], F_SETOWN, -one));
	write(p[1], &b, 1);
	int status;
	MUST(waitpid(one, &status, 0));
	say_status("a group of two", status);
	quiet();
	say_told("and I", p[0], -1, 0);
}

static int thread_id;

static void *thread(void *arg)
{
	__atomic_store_n(&thread_id, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	struct timespec t = { 300, 0 };
	siginfo_t info;
	return (void *)(long)sigtimedwait(&told, &info, &t);
}

static void threads(void)
{
	int p[2];
	pthread_t t;
	void *got;
	MUST(pipe(p));
	pthread_create(&t, NULL, thread, NULL);
	while (!__atomic_load_n(&thread_id, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	struct f_owner_ex owner = { F_OWNER_TID, thread_id };
	TRY(fcntl(p[0], F_SETOWN_EX, &owner));
	fcntl(p[0], F_SETFL, O_ASYNC);
	write(p[1], "", 1);
	pthread_join(t, &got);
	say("a thread is told by %ld", (long)got);
	say_told("the process", p[0], -1, 0);
	/* A thread that was joined may be on its way out still. */
	until_state(getpid(), thread_id, 0);
	say_owner("it has ended", p[0]);
}

static void *sleeper(void *arg)
{
	__atomic_store_n(&thread_id, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&thread_id, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	return NULL;
}

/* The number of a thread, where one of a process is asked for. */
static void by_a_threads_number(void)
{
	int p[2];
	pthread_t t;
	MUST(pipe(p));
	thread_id = 0;
	pthread_create(&t, NULL, sleeper, NULL);
	while (!__atomic_load_n(&thread_id, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	TRY(fcntl(p[0], F_SETOWN, thread_id));
	TRY(fcntl(p[0], F_GETOWN));
	fcntl(p[0], F_SETFL, O_ASYNC);
	write(p[1], "", 1);
	say_told("its process", p[0], -1, 0);
	__atomic_store_n(&thread_id, 0, __ATOMIC_SEQ_CST);
	pthread_join(t, NULL);
	close(p[0]); close(p[1]);
}

static void unix_sockets(void)
{
	for (int type = SOCK_STREAM; type <= SOCK_SEQPACKET; type += type == SOCK_STREAM ? 1 : 3) {
		int s[2];
		char b[1000] = "";
		say("type %d", type);
		MUST(socketpair(AF_UNIX, type, 0, s));
		wants(s[0], CHOSEN);
		send(s[1], b, 1, 0);
		say_told("sent", s[0], s[1], 0);
		recv(s[0], b, 1, 0);
		say_told("received", s[0], s[1], 0);
		send(s[0], b, 1, 0);
		recv(s[1], b, 1, 0);
		say_told("the other has received", s[0], s[1], 0);
		while (send(s[0], b, 1000, MSG_DONTWAIT) > 0)
			;
		say_told("full", s[0], s[1], 0);
		while (recv(s[1], b, 1000, MSG_DONTWAIT) > 0)
			;
		if (type != SOCK_DGRAM)
			say_told("empty", s[0], s[1], 0);
		quiet();
		shutdown(s[0], SHUT_RD);
		say_told("shut by itself", s[0], s[1], 0);
		shutdown(s[1], SHUT_WR);
		say_told("shut", s[0], s[1], 0);
		close(s[1]);
		say_told("closed", s[0], s[1], 0);
		close(s[0]);
		MUST(socketpair(AF_UNIX, type, 0, s));
		wants(s[0], CHOSEN);
		shutdown(s[1], SHUT_RDWR);
		say_told("shut both ways", s[0], s[1], 0);
		close(s[0]);
		close(s[1]);
	}
	struct sockaddr_un name = { AF_UNIX, "/tmp/listener" };
	int l = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), c = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
	int owner = getpid();
	TRY(ioctl(l, FIOSETOWN, &owner));
	owner = 0;
	TRY(ioctl(l, SIOCGPGRP, &owner));
	HOLDS(owner == getpid());
	owner = -getpid();
	TRY(ioctl(l, SIOCSPGRP, &owner));
	owner = 0;
	TRY(ioctl(l, FIOGETOWN, &owner));
	HOLDS(owner == -getpid());
	owner = 99999999;
	TRY(ioctl(l, SIOCSPGRP, &owner));
	TRY(ioctl(l, SIOCSPGRP, (void *)8));
	TRY(ioctl(l, SIOCGPGRP, (void *)8));
	wants(l, CHOSEN);
	wants(c, CHOSEN);
	MUST(bind(l, (void *)&name, sizeof name));
	MUST(listen(l, 5));
	say_told("listens", l, c, 0);
	MUST(connect(c, (void *)&name, sizeof name));
	say_told("connected", l, c, 0);
	close(l);
	say_told("the listener is gone", l, c, 0);
}

static struct sockaddr_in here(int port)
{
	struct sockaddr_in a = { AF_INET, htons(port), { htonl(INADDR_LOOPBACK) } };
	return a;
}

static void inet_sockets(void)
{
	struct sockaddr_in name = here(7171);
	char b[10] = "";
	cpu_set_t all = on_one_cpu();
	int l = MUST(socket(AF_INET, SOCK_STREAM, 0)), c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	wants(l, CHOSEN);
	wants(c, CHOSEN);
	MUST(bind(l, (void *)&name, sizeof name));
	MUST(listen(l, 5));
	delivered();
	say_told("listens", l, c, 0);
	MUST(connect(c, (void *)&name, sizeof name));
	int s = MUST(accept(l, NULL, NULL));
	delivered();
	say_told("connected and accepted", l, c, 0);
	say_owner("what is accepted", s);
	send(s, b, 1, 0);
	delivered();
	say_told("sent", c, s, 0);
	send(s, b, 1, MSG_OOB);
	delivered();
	say_told("urgent", c, s, 1);
	MUST(fcntl(c, F_SETSIG, 0));
	send(s, b, 1, MSG_OOB);
	delivered();
	say_told("urgent, without a signal of its own", c, s, 1);
	MUST(fcntl(c, F_SETFL, 0));
	send(s, b, 1, MSG_OOB);
	delivered();
	say_told("urgent, without O_ASYNC", c, s, 1);
	MUST(fcntl(c, F_SETOWN, 0));
	send(s, b, 1, MSG_OOB);
	delivered();
	say_told("urgent, without an owner", c, s, 1);
	wants(c, CHOSEN);
	while (recv(c, b, 1, MSG_DONTWAIT) > 0)
		;
	shutdown(s, SHUT_WR);
	delivered();
	say_told("shut", c, s, 0);
	shutdown(s, SHUT_WR);
	delivered();
	say_told("shut again", c, s, 0);
	close(c);
	close(s);
	c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(c, (void *)&name, sizeof name));
	s = MUST(accept(l, NULL, NULL));
	quiet();
	wants(c, CHOSEN);
	shutdown(c, SHUT_WR);
	delivered();
	say_told("shut by itself", c, s, 0);
	close(s);
	delivered();
	say_told("the other is closed", c, s, 0);
	close(c);
	c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(c, (void *)&name, sizeof name));
	s = MUST(accept(l, NULL, NULL));
	quiet();
	wants(c, CHOSEN);
	struct linger reset = { 1, 0 };
	setsockopt(s, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	close(s);
	delivered();
	say_told("reset", c, s, 0);
	close(c);
	close(l);
	int u = MUST(socket(AF_INET, SOCK_DGRAM, 0)), v = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	name = here(7172);
	MUST(bind(u, (void *)&name, sizeof name));
	MUST(connect(v, (void *)&name, sizeof name));
	wants(u, CHOSEN);
	wants(v, CHOSEN);
	send(v, b, 1, 0);
	send(v, b, 1, 0);
	delivered();
	say_told("a packet and another one", u, v, 0);
	recv(u, b, 1, 0);
	delivered();
	say_told("received", u, v, 0);
	close(u);
	send(v, b, 1, 0);
	delivered();
	say_told("refused", v, u, 0);
	MUST(sched_setaffinity(0, sizeof all, &all));
}

/* Who waits for bytes is not told of them. */
static _Atomic pid_t waits;

static void *receiver(void *arg)
{
	char b;
	waits = syscall(SYS_gettid);
	return (void *)recv(*(int *)arg, &b, 1, 0);
}

static void waiting(void)
{
	int s[2];
	pthread_t t;
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	wants(s[0], CHOSEN);
	/* Linux wakes who waits before it looks whether any does: on two CPUs it may be gone by then. */
	cpu_set_t all = on_one_cpu();
	waits = 0;
	pthread_create(&t, NULL, receiver, &s[0]);
	while (!waits)
		sched_yield();
	until_in_call(getpid(), waits, SYS_recvfrom);
	send(s[1], "", 1, 0);
	pthread_join(t, NULL);
	MUST(sched_setaffinity(0, sizeof all, &all));
	say_told("received by who waited", s[0], s[1], 0);
}

static void terminals(void)
{
	char name[64], b[64];
	int zero = 0, n = 0;
	int m = MUST(open("/dev/ptmx", O_RDWR | O_NOCTTY));
	MUST(ioctl(m, TIOCSPTLCK, &zero));
	MUST(ioctl(m, TIOCGPTN, &n));
	snprintf(name, sizeof name, "/dev/pts/%d", n);
	int t = MUST(open(name, O_RDWR | O_NOCTTY | O_NONBLOCK));
	MUST(fcntl(t, F_SETFL, O_NONBLOCK | O_ASYNC));
	say_owner("a terminal", t);
	MUST(fcntl(t, F_SETSIG, CHOSEN));
	TRY(ioctl(t, FIOSETOWN, &zero));
	write(m, "ab", 2);
	say_told("typed", t, m, 0);
	write(m, "c\n", 2);
	say_told_later("a line", t, m, 0);
	read(t, b, sizeof b);
	say_told("read", t, m, 0);
	write(m, "\4", 1);
	say_told_later("an end", t, m, 0);
	read(t, b, sizeof b);
	struct termios raw;
	MUST(tcgetattr(t, &raw));
	cfmakeraw(&raw);
	MUST(tcsetattr(t, TCSANOW, &raw));
	write(m, "ab", 2);
	say_told_later("typed, raw", t, m, 1);
	write(t, "x", 1);
	say_told("written", t, m, 0);
	/* Linux says that nothing is there once all that was on its way has come. */
	MUST(fcntl(m, F_SETFL, O_NONBLOCK));
	while (read(m, b, sizeof b) > 0)
		;
	MUST(fcntl(m, F_SETFL, O_NONBLOCK | O_ASYNC));
	say_owner("a master", m);
	MUST(fcntl(m, F_SETSIG, CHOSEN));
	write(t, "x", 1);
	say_told_later("written, the master", m, t, 1);
	close(m);
	say_told("hung up", t, m, 1);
	TRY(fcntl(t, F_SETFL, O_NONBLOCK));
	close(t);
	m = MUST(open("/dev/ptmx", O_RDWR | O_NOCTTY));
	MUST(ioctl(m, TIOCSPTLCK, &zero));
	MUST(ioctl(m, TIOCGPTN, &n));
	snprintf(name, sizeof name, "/dev/pts/%d", n);
	t = MUST(open(name, O_RDWR | O_NOCTTY));
	MUST(fcntl(t, F_SETFL, O_ASYNC));
	MUST(fcntl(t, F_SETOWN, getpid()));
	MUST(ioctl(t, TIOCVHANGUP));
	int again = MUST(open(name, O_RDWR | O_NOCTTY));
	write(m, "x\n", 2);
	say_told("hung up and opened again", t, again, 0);
	close(t);
	close(again);
	close(m);
}

int main(void)
{
	sigemptyset(&told);
	sigaddset(&told, SIGIO);
	sigaddset(&told, SIGURG);
	sigaddset(&told, SIGUSR2);
	sigaddset(&told, SIGCHLD);
	sigaddset(&told, CHOSEN);
	sigprocmask(SIG_BLOCK, &told, NULL);
	signal(SIGPIPE, SIG_IGN);
	mkdir("/tmp", 0777);
	names();
	quiet();
	pipes();
	quiet();
	others();
	quiet();
	threads();
	by_a_threads_number();
	quiet();
	unix_sockets();
	quiet();
	inet_sockets();
	quiet();
	waiting();
	quiet();
	terminals();
	say("done");
	return 0;
}
