/* POSIX message queues: names, priorities, waiting, notices, and their files. */
#include "say.h"
#include "blocked.h"
#include <limits.h>
#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/statfs.h>

static char name[64];
static char text[16384];
static mqd_t q;

static mqd_t open_with(int flags, long messages, long size)
{
	struct mq_attr attr = { .mq_maxmsg = messages, .mq_msgsize = size };
	return mq_open(name, flags | O_CREAT, 0640, &attr);
}

static void attributes(mqd_t of)
{
	struct mq_attr attr;
	memset(&attr, 0xff, sizeof attr);
	MUST(mq_getattr(of, &attr));
	say("flags %#lx, %ld messages of %ld, %ld bytes each", attr.mq_flags, attr.mq_curmsgs, attr.mq_maxmsg, attr.mq_msgsize);
}

static void take(void)
{
	unsigned priority = 99;
	memset(text, 0, sizeof text);
	errno = 0;
	ssize_t n = mq_receive(q, text, sizeof text, &priority);
	if (n < 0)
		say("%s", strerrorname_np(errno));
	else
		say("%zd bytes of priority %u: %s", n, priority, text);
}

static int put(const char *what, unsigned priority)
{
	return mq_send(q, what, strlen(what), priority);
}

static void names(void)
{
	char longest[300] = "/";
	memset(longest + 1, 'a', 255);
	TRY(mq_open(name, O_RDWR));
	TRY(mq_open("/", O_RDWR | O_CREAT, 0600, 0));
	TRY(mq_open("/.", O_RDWR | O_CREAT, 0600, 0));
	TRY(mq_open("/..", O_RDWR | O_CREAT, 0600, 0));
	TRY(mq_open("/a/b", O_RDWR | O_CREAT, 0600, 0));
	TRY(mq_open("no-slash", O_RDWR | O_CREAT, 0600, 0));
	DO(q = mq_open(longest, O_RDWR | O_CREAT, 0600, 0));
	TRY(mq_close(q));
	TRY(mq_unlink(longest));
	longest[256] = 'a';
	TRY(mq_open(longest, O_RDWR | O_CREAT, 0600, 0));
	TRY(mq_unlink(longest));
	TRY(mq_unlink("/"));
	TRY(mq_unlink("/a/b"));
	TRY(mq_unlink("/."));
	TRY(mq_unlink(name));
	DO(q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0666, 0));
	TRY(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, 0));
	TRY(mq_open(name, O_RDWR | O_WRONLY));
	TRY(fcntl(q, F_GETFD));
	TRY(fcntl(q, F_GETFL));
	attributes(q);
	mqd_t other = MUST(mq_open(name, O_RDONLY | O_NONBLOCK));
	attributes(other);
	TRY(mq_send(other, "x", 1, 0));
	TRY(mq_close(other));
	other = MUST(mq_open(name, O_WRONLY | O_CREAT, 0, 0));
	TRY(mq_receive(other, text, sizeof text, 0));
	TRY(put("kept", 1));
	/* Its name goes; who has it open keeps it. */
	TRY(mq_unlink(name));
	TRY(mq_open(name, O_RDWR));
	mqd_t new = MUST(mq_open(name, O_RDWR | O_CREAT, 0600, 0));
	attributes(new);
	TRY(mq_close(new));
	TRY(mq_unlink(name));
	take();
	TRY(mq_close(other));
	TRY(mq_close(q));
	TRY(mq_close(q));
}

static void sizes(void)
{
	TRY(open_with(O_RDWR, 0, 10));
	TRY(open_with(O_RDWR, 10, 0));
	TRY(open_with(O_RDWR, -1, 10));
	TRY(open_with(O_RDWR, 10, -1));
	TRY(open_with(O_RDWR, 65537, 10));
	TRY(open_with(O_RDWR, 1, (16 << 20) + 1));
	TRY(open_with(O_RDWR, LONG_MAX, LONG_MAX));
	TRY(mq_open(name, O_RDWR | O_CREAT, 0600, (void *)8));
	TRY(mq_open(name, O_RDWR, 0600, (void *)8));
	TRY(mq_open(name, O_RDWR));
	q = MUST(open_with(O_RDWR, 3, 5));
	attributes(q);
	TRY(mq_send(q, "123456", 6, 0));
	TRY(mq_send(q, "12345", 5, 32768));
	TRY(mq_send(q, "12345", 5, -1));
	TRY(mq_send(q, 0, 5, 0));
	TRY(mq_send(q, "12345", 5, 32767));
	TRY(mq_receive(q, text, 4, 0));
	TRY(mq_receive(q, text, 5, 0));
	TRY(mq_send(q, 0, 0, 0));
	TRY(mq_receive(q, text, 5, 0));
	TRY(put("gone", 1));
	TRY(mq_receive(q, (void *)8, 5, 0));
	attributes(q);
	TRY(mq_send(0, "x", 1, 0));
	TRY(mq_send(-1, "x", 1, 0));
	TRY(mq_receive(99, text, 10, 0));
	TRY(mq_notify(0, 0));
	TRY(syscall(SYS_mq_getsetattr, 0, 0, 0));
	TRY(mq_close(q));
	TRY(mq_unlink(name));
}

static void priorities(void)
{
	q = MUST(open_with(O_RDWR | O_NONBLOCK, 8, 20));
	TRY(put("low", 0));
	TRY(put("high", 9));
	TRY(put("high again", 9));
	TRY(put("middle", 5));
	TRY(put("low again", 0));
	attributes(q);
	for (int i = 0; i < 6; i++)
		take();
	while (put("x", 3) == 0)
		;
	say("full: %s", strerrorname_np(errno));
	attributes(q);
	/* Flags. */
	struct mq_attr new = { .mq_flags = 0, .mq_maxmsg = 1 }, old;
	TRY(mq_setattr(q, &new, &old));
	say("%#lx %ld %ld %ld", old.mq_flags, old.mq_maxmsg, old.mq_msgsize, old.mq_curmsgs);
	attributes(q);
	new.mq_flags = O_NONBLOCK | O_APPEND;
	TRY(mq_setattr(q, &new, 0));
	TRY(syscall(SYS_mq_getsetattr, q, (void *)8, 0));
	TRY(syscall(SYS_mq_getsetattr, q, 0, (void *)8));
	TRY(syscall(SYS_mq_getsetattr, q, 0, 0));
	TRY(syscall(SYS_mq_getsetattr, -1, &new, 0));
	TRY(mq_close(q));
	TRY(mq_unlink(name));
}

static struct timespec in_ms(long ms)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += ms * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

#define CHILD(out, what) ({ pid_t c_ = MUST(fork()); if (!c_) { errno = 0; memset(text, 0, sizeof text); long r_ = (what); \
	int e_ = errno; char l_[128]; \
	write(out, l_, snprintf(l_, sizeof l_, "%s: %ld %s %.16s\n", #what, r_, r_ < 0 ? strerrorname_np(e_) : "", text)); \
	_exit(0); } until_blocked(c_); c_; })

static void collect(int from)
{
	char line[256];
	int n = 0;
	while (n < 255 && read(from, line + n, 1) == 1 && line[n++] != '\n')
		;
	line[n ? n - 1 : 0] = 0;
	say("%s", line);
}

static void on_signal(int n)
{
	(void)n;
}

static void waiting(void)
{
	int p[2];
	MUST(pipe(p));
	struct timespec bad = { 0, 1000000000 }, negative = { -1, 0 }, past = { 1, 0 }, soon = in_ms(30);
	q = MUST(open_with(O_RDWR, 1, 20));
	TRY(mq_timedreceive(q, text, sizeof text, 0, &bad));
	TRY(mq_timedreceive(q, text, sizeof text, 0, &negative));
	TRY(mq_timedreceive(q, text, sizeof text, 0, &past));
	TRY(mq_timedreceive(q, text, sizeof text, 0, (void *)8));
	TRY(mq_timedreceive(q, text, sizeof text, 0, &soon));
	struct timespec after = in_ms(0);
	HOLDS(after.tv_sec > soon.tv_sec || after.tv_sec == soon.tv_sec && after.tv_nsec >= soon.tv_nsec);
	/* Who waits longest is first. */
	CHILD(p[1], mq_receive(q, text, 20, 0));
	CHILD(p[1], mq_receive(q, text, 21, 0));
	TRY(put("one", 1));
	collect(p[0]);
	TRY(put("two", 2));
	collect(p[0]);
	TRY(put("fills it", 3));
	soon = in_ms(30);
	TRY(mq_timedsend(q, "x", 1, 0, &soon));
	TRY(mq_timedsend(q, "x", 1, 0, &past));
	TRY(mq_timedsend(q, "x", 1, 40000, &bad));
	CHILD(p[1], put("low", 1));
	CHILD(p[1], put("high", 2));
	take();
	collect(p[0]);
	take();
	collect(p[0]);
	take();
	/* A better nice value goes before. */
	CHILD(p[1], nice(5) < 0 ? -1 : mq_receive(q, text, 22, 0));
	CHILD(p[1], mq_receive(q, text, 23, 0));
	TRY(put("for the better", 1));
	collect(p[0]);
	TRY(put("for the other", 1));
	collect(p[0]);
	/* A signal. */
	struct sigaction act = { .sa_handler = on_signal };
	sigaction(SIGUSR1, &act, 0);
	kill(CHILD(p[1], mq_receive(q, text, 20, 0)), SIGUSR1);
	collect(p[0]);
	TRY(put("full", 0));
	kill(CHILD(p[1], put("x", 0)), SIGUSR1);
	collect(p[0]);
	act.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &act, 0);
	take();
	pid_t child = CHILD(p[1], mq_receive(q, text, 20, 0));
	kill(child, SIGUSR1);
	until_blocked(child);
	TRY(put("after a restart", 0));
	collect(p[0]);
	child = CHILD(p[1], mq_receive(q, text, 20, 0));
	kill(child, SIGKILL);
	int status;
	waitpid(child, &status, 0);
	say_status("who is killed", status);
	TRY(put("stays", 0));
	attributes(q);
	while (wait(0) > 0)
		;
	TRY(mq_close(q));
	TRY(mq_unlink(name));
}

static void show_file(mqd_t of)
{
	char line[128];
	int n = pread(of, line, sizeof line - 1, 0);
	line[n > 0 ? n : 0] = 0;
	char *pid = strstr(line, "NOTIFY_PID:");
	if (pid) {
		int number = atoi(pid + 11);
		pid[11] = 0;
		say("%s%s", line, number == getpid() ? "mine" : number ? "another's" : "no process's");
	} else
		say("%d [%s]", n, line);
}

static void files(void)
{
	struct stat st;
	struct statfs fs;
	char link[64], target[128];
	q = MUST(open_with(O_RDWR, 2, 20));
	MUST(fstat(q, &st));
	say("%o %ld %ld %ld", st.st_mode, (long)st.st_size, (long)st.st_nlink, (long)st.st_blocks);
	MUST(fstatfs(q, &fs));
	say("%lx", fs.f_type);
	TRY(fchmod(q, 0600));
	MUST(fstat(q, &st));
	say("%o", st.st_mode);
	snprintf(link, sizeof link, "/proc/self/fd/%d", q);
	int n = readlink(link, target, sizeof target - 1);
	target[n] = 0;
	HOLDS(!strcmp(target, name));
	show_file(q);
	TRY(put("12345", 1));
	TRY(put("123", 1));
	show_file(q);
	TRY(lseek(q, 6, SEEK_SET));
	TRY(read(q, target, 3));
	TRY(memcmp(target, "8 ", 2));
	TRY(write(q, "x", 1));
	TRY(ftruncate(q, 0));
	TRY(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, q, 0));
	int again = MUST(open(link, O_RDWR));
	attributes(again);
	TRY(close(again));

	struct pollfd one = { q, POLLIN | POLLOUT };
	TRY(poll(&one, 1, 0));
	say("%#x", one.revents);
	take();
	TRY(poll(&one, 1, 0));
	say("%#x", one.revents);
	take();
	TRY(poll(&one, 1, 0));
	say("%#x", one.revents);
	int e = MUST(epoll_create1(0));
	struct epoll_event event = { EPOLLIN | EPOLLET, { .u32 = 7 } }, found;
	TRY(epoll_ctl(e, EPOLL_CTL_ADD, q, &event));
	TRY(epoll_wait(e, &found, 1, 0));
	TRY(put("x", 1));
	TRY(epoll_wait(e, &found, 1, 0));
	TRY(epoll_wait(e, &found, 1, 0));
	TRY(close(e));
	take();
	/* A poll that waits. */
	pid_t child = MUST(fork());
	if (!child) {
		one.events = POLLIN;
		TRY(poll(&one, 1, -1));
		take();
		_exit(0);
	}
	until_blocked(child);
	MUST(put("for who polls", 1));
	waitpid(child, 0, 0);
	TRY(mq_unlink(name));
	n = readlink(link, target, sizeof target - 1);
	target[n] = 0;
	HOLDS(!strncmp(target, name, strlen(name)) && !strcmp(target + strlen(name), " (deleted)"));
	TRY(mq_close(q));
}

static volatile siginfo_t seen;
static volatile int signals;

static void on_notice(int n, siginfo_t *info, void *unused)
{
	(void)unused;
	seen = *info;
	signals++;
}

static void notices(void)
{
	struct sigaction act = { .sa_sigaction = on_notice, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(SIGRTMIN + 2, &act, 0);
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2, .sigev_value.sival_int = 77 };
	struct sigevent none = { .sigev_notify = SIGEV_NONE };
	struct sigevent wrong = { .sigev_notify = 7 }, signal = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = 65 };
	struct sigevent zero = { .sigev_notify = SIGEV_SIGNAL };
	q = MUST(open_with(O_RDWR | O_NONBLOCK, 3, 20));
	TRY(mq_notify(q, &wrong));
	TRY(mq_notify(q, &signal));
	TRY(syscall(SYS_mq_notify, q, (void *)8));
	TRY(mq_notify(-1, &event));
	/* A thread is told of by a netlink socket, which this is not. */
	int pair[2];
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	struct sigevent thread = { .sigev_notify = SIGEV_THREAD, .sigev_signo = pair[0], .sigev_value.sival_ptr = name };
	TRY(syscall(SYS_mq_notify, q, &thread));
	thread.sigev_signo = q;
	TRY(syscall(SYS_mq_notify, q, &thread));
	thread.sigev_signo = -1;
	TRY(syscall(SYS_mq_notify, q, &thread));
	thread.sigev_value.sival_ptr = 0;
	TRY(syscall(SYS_mq_notify, q, &thread));
	TRY(mq_notify(q, 0));
	TRY(mq_notify(q, &zero));
	TRY(mq_notify(q, 0));
	TRY(mq_notify(q, &event));
	show_file(q);
	TRY(mq_notify(q, &event));
	IN_CHILD("another", {
		TRY(mq_notify(q, &event));
		TRY(mq_notify(q, 0));
		show_file(q);
		TRY(put("first", 1));
	});
	HOLDS(signals == 1 && seen.si_code == SI_MESGQ && seen.si_value.sival_int == 77);
	HOLDS(seen.si_pid != getpid() && seen.si_pid > 0 && seen.si_uid == getuid() && seen.si_errno == 0);
	show_file(q);
	/* Only the first message to an empty queue tells, and only once. */
	TRY(mq_notify(q, &event));
	TRY(put("second", 1));
	say("%d", signals);
	take();
	take();
	TRY(put("third", 1));
	HOLDS(signals == 2 && seen.si_pid == getpid());
	take();
	TRY(put("fourth", 1));
	say("%d", signals);
	take();
	/* Who waits to receive gets the message, and no process is told. */
	TRY(mq_notify(q, &event));
	int p[2];
	MUST(pipe(p));
	struct mq_attr blocking = { .mq_flags = 0 };
	TRY(mq_setattr(q, &blocking, 0));
	CHILD(p[1], mq_receive(q, text, 20, 0));
	TRY(put("fifth", 1));
	collect(p[0]);
	say("%d", signals);
	TRY(put("sixth", 1));
	say("%d", signals);
	take();
	/* A process that closes a descriptor is told no more. */
	TRY(mq_notify(q, &none));
	show_file(q);
	TRY(mq_notify(q, &event));
	TRY(mq_notify(q, 0));
	TRY(mq_notify(q, &event));
	int other = MUST(dup(q));
	IN_CHILD("who closes its own", mq_close(other));
	TRY(mq_notify(q, &event));
	TRY(close(other));
	TRY(mq_notify(q, &event));
	TRY(mq_notify(q, 0));
	/* And who ends. */
	IN_CHILD("who registers", TRY(mq_notify(q, &event)));
	TRY(mq_notify(q, &event));
	while (wait(0) > 0)
		;
	TRY(mq_close(q));
	TRY(mq_unlink(name));
}

/* Many senders and receivers: each message comes once. */
static void storm(void)
{
	enum { PAIRS = 4, TURNS = 400 };
	volatile long *sums = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	q = MUST(open_with(O_RDWR, 3, 20));
	for (int i = 0; i < PAIRS; i++) {
		if (!MUST(fork())) {
			for (long n = 1; n <= TURNS; n++)
				mq_send(q, (void *)&n, sizeof n, n % 5);
			_exit(0);
		}
		if (!MUST(fork())) {
			for (long n = 1, got; n <= TURNS; n++)
				if (mq_receive(q, text, 20, 0) == sizeof got) {
					memcpy(&got, text, sizeof got);
					__sync_fetch_and_add(sums, got);
				}
			_exit(0);
		}
	}
	while (wait(0) > 0)
		;
	say("%ld of %ld", *sums, (long)PAIRS * TURNS * (TURNS + 1) / 2);
	attributes(q);
	TRY(mq_close(q));
	TRY(mq_unlink(name));
}

int main(void)
{
	snprintf(name, sizeof name, "/ebb-%d", getpid());
	umask(022);
	names();
	sizes();
	priorities();
	waiting();
	files();
	notices();
	storm();
	return 0;
}
