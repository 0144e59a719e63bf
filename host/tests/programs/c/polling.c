/* Waiting for several files at once: poll, select, epoll, event and timer descriptors. */
#include "say.h"
#include "blocked.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static struct pollfd *waited_for;

static void *change_entry(void *pipe)
{
	until_in_call(getpid(), getpid(), SYS_poll);
	waited_for->fd = -5;
	waited_for->events = POLLPRI;
	MUST(write(*(int *)pipe, "x", 1));
	return NULL;
}

static void polls(void)
{
	int p[2], q[2];
	MUST(pipe(p));
	MUST(pipe(q));
	struct pollfd f[4] = { { p[0], POLLIN, 0 }, { q[1], POLLOUT | POLLIN, 0 }, { -1, POLLIN, 7 }, { 77, POLLIN, 0 } };
	TRY(poll(f, 3, 0));
	say("%x %x %x", f[0].revents, f[1].revents, f[2].revents);
	TRY(poll(f, 4, -1));
	say("%x", f[3].revents);
	double t = now();
	TRY(poll(f, 1, 30));
	HOLDS(now() - t >= 0.029);
	TRY(write(p[1], "abc", 3));
	TRY(poll(f, 1, -1));
	say("%x", f[0].revents);
	close(p[1]);
	TRY(poll(f, 1, -1));
	say("%x", f[0].revents);
	char c[3];
	MUST(read(p[0], c, 3));
	TRY(poll(f, 1, -1));
	say("%x", f[0].revents);
	close(q[0]);
	TRY(poll(f + 1, 1, -1));
	say("%x", f[1].revents);
	TRY(poll(NULL, 0, 5));
	TRY(poll((void *)8, 1, 0));
	int file = MUST(open("/tmp", O_RDONLY));
	f[0].fd = file;
	f[0].events = POLLIN | POLLOUT;
	TRY(poll(f, 1, 0));
	say("%x", f[0].revents);
	struct timespec bad = { 0, -1 };
	TRY(ppoll(f, 1, &bad, NULL));
	/* a child's byte ends the waiting */
	MUST(pipe(p));
	pid_t child = MUST(fork());
	if (child == 0) {
		sleep_ms(40);
		MUST(write(p[1], "x", 1));
		_exit(0);
	}
	f[0] = (struct pollfd){ p[0], POLLIN, 0 };
	TRY(poll(f, 1, 600000));
	MUST(waitpid(child, NULL, 0));
	/* so does a signal, unless it is blocked */
	signal(SIGALRM, ({ void g(int s) { (void)s; } g; }));
	MUST(read(p[0], c, 1));
	struct itimerval it = { { 0, 0 }, { 0, 20000 } };
	alarm_once_asleep(20);
	f[0].revents = 7;
	TRY(poll(f, 1, 600000));
	say("%x", f[0].revents);
	/* What another thread writes in the meantime stays. */
	waited_for = f;
	pthread_t thread;
	pthread_create(&thread, NULL, change_entry, &p[1]);
	TRY(poll(f, 1, 600000));
	pthread_join(thread, NULL);
	say("%d %x %x", f[0].fd, f[0].events, f[0].revents);
	f[0] = (struct pollfd){ p[0], POLLIN, 0 };
	MUST(read(p[0], c, 1));
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	setitimer(ITIMER_REAL, &it, NULL);
	struct timespec ts = { 0, 60000000 };
	TRY(ppoll(f, 1, &ts, &set));
}

static void selects(void)
{
	int p[2];
	MUST(pipe(p));
	fd_set r, w, e;
#define SETS do { FD_ZERO(&r); FD_ZERO(&w); FD_ZERO(&e); FD_SET(p[0], &r); FD_SET(p[1], &w); FD_SET(p[0], &e); } while (0)
	SETS;
	TRY(select(20, &r, &w, &e, NULL));
	say("%d %d %d", FD_ISSET(p[0], &r) != 0, FD_ISSET(p[1], &w) != 0, FD_ISSET(p[0], &e) != 0);
	MUST(write(p[1], "x", 1));
	SETS;
	TRY(select(20, &r, NULL, NULL, NULL));
	char c;
	MUST(read(p[0], &c, 1));
	SETS;
	struct timeval t = { 0, 20000 };
	TRY(select(20, &r, NULL, NULL, &t));
	say("%d, left %ld", FD_ISSET(p[0], &r) != 0, (long)t.tv_usec);
	SETS;
	TRY(pselect(20, &r, &w, NULL, &(struct timespec){ 1, 0 }, NULL));
	FD_SET(60, &r);
	TRY(select(64, &r, NULL, NULL, NULL));
	TRY(select(-1, &r, NULL, NULL, NULL));
	t = (struct timeval){ 0, 10000 };
	TRY(select(0, NULL, NULL, NULL, &t));
	t = (struct timeval){ -1, 0 };
	TRY(select(0, NULL, NULL, NULL, &t));
}

static void say_events(struct epoll_event *e, int n)
{
	for (int i = 0; i < n; i++)
		say("  events %x data %lx", e[i].events, (long)e[i].data.u64);
}

static void epolls(void)
{
	int ep, p[2], q[2];
	DO(ep = epoll_create1(EPOLL_CLOEXEC));
	MUST(pipe(p));
	MUST(pipe(q));
	struct epoll_event e = { EPOLLIN, { .u64 = 0x1111 } }, got[8];
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e));
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e));
	TRY(epoll_ctl(ep, EPOLL_CTL_DEL, q[0], NULL));
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, ep, &e));
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, 88, &e));
	TRY(epoll_ctl(p[0], EPOLL_CTL_ADD, p[0], &e));
	TRY(epoll_ctl(ep, 9, p[0], &e));
	int file = MUST(open("regular", O_RDWR | O_CREAT, 0600));
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, file, &e));
	unlink("regular");
	TRY(epoll_wait(ep, got, 8, 0));
	TRY(epoll_wait(ep, got, 0, 0));
	TRY(epoll_wait(ep, got, 8, 10));
	MUST(write(p[1], "ab", 2));
	int n;
	TRY(n = epoll_wait(ep, got, 8, -1));
	say_events(got, n);
	TRY(epoll_wait(ep, got, 8, -1));
	/* edges come once */
	e = (struct epoll_event){ EPOLLIN | EPOLLET, { .u64 = 0x2222 } };
	TRY(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &e));
	TRY(n = epoll_wait(ep, got, 8, -1));
	say_events(got, n);
	TRY(epoll_wait(ep, got, 8, 0));
	MUST(write(p[1], "c", 1));
	TRY(n = epoll_wait(ep, got, 8, 1000));
	TRY(epoll_wait(ep, got, 8, 0));
	/* one shot */
	e = (struct epoll_event){ EPOLLIN | EPOLLONESHOT, { .u64 = 0x3333 } };
	TRY(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &e));
	TRY(n = epoll_wait(ep, got, 8, -1));
	TRY(epoll_wait(ep, got, 8, 0));
	TRY(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &e));
	TRY(n = epoll_wait(ep, got, 8, -1));
	/* several, and the end of a pipe */
	e = (struct epoll_event){ EPOLLOUT, { .u64 = 0x4444 } };
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, q[1], &e));
	e = (struct epoll_event){ EPOLLIN, { .u64 = 0x5555 } };
	TRY(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &e));
	TRY(n = epoll_wait(ep, got, 8, -1));
	TRY(n = epoll_wait(ep, got, 1, -1));
	char c[10];
	MUST(read(p[0], c, 10));
	close(p[1]);
	close(q[0]);
	TRY(n = epoll_wait(ep, got, 8, -1));
	uint32_t all = 0;
	for (int i = 0; i < n; i++)
		all |= got[i].events;
	say("%x", all);
	/* a closed descriptor leaves the set */
	close(p[0]);
	TRY(n = epoll_wait(ep, got, 8, 0));
	/* an epoll in a poll */
	struct pollfd f = { ep, POLLIN, 0 };
	TRY(poll(&f, 1, 0));
	close(q[1]);
	TRY(poll(&f, 1, 0));
}

static void descriptors(void)
{
	uint64_t v;
	int ev;
	DO(ev = eventfd(3, EFD_NONBLOCK));
	TRY(read(ev, &v, 8));
	say("%lu", v);
	TRY(read(ev, &v, 8));
	v = 5;
	TRY(write(ev, &v, 8));
	TRY(write(ev, &v, 8));
	TRY(read(ev, &v, 8));
	say("%lu", v);
	TRY(read(ev, &v, 4));
	v = ~0ul;
	TRY(write(ev, &v, 8));
	v = ~0ul - 1;
	TRY(write(ev, &v, 8));
	v = 1;
	TRY(write(ev, &v, 8));
	struct pollfd f = { ev, POLLIN | POLLOUT, 0 };
	TRY(poll(&f, 1, 0));
	say("%x", f.revents);
	int sem;
	DO(sem = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK));
	for (int i = 0; i < 3; i++)
		TRY(read(sem, &v, 8));
	int tf;
	DO(tf = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	TRY(read(tf, &v, 8));
	struct itimerspec spec = { { 0, 5000000 }, { 0, 10000000 } }, left;
	TRY(timerfd_settime(tf, 0, &spec, NULL));
	f.fd = tf;
	f.events = POLLIN;
	TRY(poll(&f, 1, 600000));
	sleep_ms(30);
	TRY(read(tf, &v, 8));
	HOLDS(v >= 3);
	TRY(timerfd_gettime(tf, &left));
	HOLDS(left.it_interval.tv_nsec == 5000000);
	spec = (struct itimerspec){ 0 };
	TRY(timerfd_settime(tf, 0, &spec, NULL));
	f.revents = 0;
	TRY(poll(&f, 1, 20));
}

static void one_end_goes(unsigned mask, int watch, int before)
{
	int p[2], e = MUST(epoll_create1(0));
	struct epoll_event told = { mask, { .u64 = 7 } };
	MUST(pipe(p));
	if (before)
		close(p[!watch]);
	MUST(epoll_ctl(e, EPOLL_CTL_ADD, p[watch], &told));
	if (!before)
		close(p[!watch]);
	told = (struct epoll_event){ 0 };
	int first = MUST(epoll_wait(e, &told, 1, 1000));
	int again = MUST(epoll_wait(e, &told, 1, 0));
	say("mask %x, %s end, gone %s: %d, %d, events %x of %d", mask, watch ? "write" : "read",
	    before ? "before" : "after", first, again, told.events, (int)told.data.u64);
	close(e);
	close(p[watch]);
}

/* That an end is gone is told whatever was asked for. */
static void told_always(void)
{
	unsigned masks[] = { 0, EPOLLPRI, EPOLLET, EPOLLONESHOT };
	for (int m = 0; m < 4; m++)
		for (int watch = 0; watch < 2; watch++)
			for (int before = 0; before < 2; before++)
				one_end_goes(masks[m], watch, before);
	/* nothing to tell of, until the mask changes */
	int p[2], e = MUST(epoll_create1(0));
	struct epoll_event told = { 0 };
	MUST(pipe(p));
	MUST(write(p[1], "x", 1));
	MUST(epoll_ctl(e, EPOLL_CTL_ADD, p[0], &told));
	TRY(epoll_wait(e, &told, 1, 0));
	told.events = EPOLLIN | EPOLLONESHOT;
	TRY(epoll_ctl(e, EPOLL_CTL_MOD, p[0], &told));
	/* a bad place spends nothing */
	TRY(syscall(SYS_epoll_wait, e, HOLE, 1, 0));
	TRY(epoll_wait(e, &told, 1, 0));
	TRY(epoll_wait(e, &told, 1, 0));
	told.events = 0;
	TRY(epoll_ctl(e, EPOLL_CTL_MOD, p[0], &told));
	close(p[1]);
	TRY(epoll_wait(e, &told, 1, 0));
	say("events %x", told.events);
	close(p[0]);
	close(e);
}

enum { MANY = 300 };

/* More events than a wait takes: each round tells of others, in turn. */
static void many(void)
{
	int e = MUST(epoll_create1(0)), ends[MANY][2], seen[MANY] = { 0 }, twice = 0;
	struct epoll_event told[64];
	for (int i = 0; i < MANY; i++) {
		struct epoll_event wanted = { EPOLLIN, { .u32 = i } };
		MUST(pipe(ends[i]));
		MUST(write(ends[i][1], "x", 1));
		MUST(epoll_ctl(e, EPOLL_CTL_ADD, ends[i][0], &wanted));
	}
	for (int round = 0; round < (MANY + 63) / 64; round++) {
		int n = MUST(epoll_wait(e, told, 64, 0));
		say("%d events", n);
		for (int i = 0; i < n; i++)
			seen[told[i].data.u32]++;
	}
	int all = 0;
	for (int i = 0; i < MANY; i++) {
		all += seen[i] > 0;
		twice += seen[i] > 1;
	}
	say("%d of %d told of, %d of them twice", all, MANY, twice);
	/* those that leave while they are ready are told of no more */
	for (int i = 0; i < MANY; i += 2) {
		if (i % 4)
			MUST(epoll_ctl(e, EPOLL_CTL_DEL, ends[i][0], NULL));
		close(ends[i][0]);
		close(ends[i][1]);
	}
	int left = 0, odd = 0;
	static struct epoll_event rest[2 * MANY];
	left = MUST(epoll_wait(e, rest, 2 * MANY, 0));
	for (int i = 0; i < left; i++)
		odd += rest[i].data.u32 % 2;
	say("%d are left, %d of them odd", left, odd);
	for (int i = 1; i < MANY; i += 2) {
		close(ends[i][0]);
		close(ends[i][1]);
	}
	TRY(epoll_wait(e, told, 64, 0));
	close(e);
}

#define ROUNDS 500
#define FILES 6

static int closing_set, closing_files[FILES];
static pthread_barrier_t closing;

static void *close_files(void *unused)
{
	(void)unused;
	for (int round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&closing);
		for (int i = 0; i < FILES; i++)
			close(closing_files[i]);
		pthread_barrier_wait(&closing);
	}
	return NULL;
}

/* A set and the files in it are closed at once, with another set that has the files and stays. */
static void closes(void)
{
	struct epoll_event e = { EPOLLIN }, got[FILES];
	int stays = MUST(epoll_create1(0)), left = 0;
	pthread_t thread;
	pthread_barrier_init(&closing, NULL, 2);
	pthread_create(&thread, NULL, close_files, NULL);
	for (int round = 0; round < ROUNDS; round++) {
		closing_set = MUST(epoll_create1(0));
		for (int i = 0; i < FILES; i++) {
			int file = i % 3 == 0 ? epoll_create1(0) : i % 3 == 1 ? timerfd_create(CLOCK_MONOTONIC, 0) : eventfd(1, 0);
			closing_files[i] = MUST(file);
			MUST(epoll_ctl(closing_set, EPOLL_CTL_ADD, file, &e));
			MUST(epoll_ctl(stays, EPOLL_CTL_ADD, file, &e));
		}
		pthread_barrier_wait(&closing);
		if (round % 2)
			epoll_wait(closing_set, got, FILES, 0);
		close(closing_set);
		pthread_barrier_wait(&closing);
		left += epoll_wait(stays, got, FILES, 0);
	}
	pthread_join(thread, NULL);
	say("%d left after all rounds", left);
	close(stays);
}

int main(void)
{
	polls();
	selects();
	epolls();
	told_always();
	many();
	descriptors();
	closes();
	return 0;
}
