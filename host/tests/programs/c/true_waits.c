/* Who is woken by what, and when: sets of files and sets of those, signals at descriptors, timers on CPU clocks. */
#include "say.h"
#include "blocked.h"
#include <pthread.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <stdatomic.h>

static atomic_int waiting, woken, stop;
static int shared_event;

enum { EVENT, END };

struct waiter { int set; _Atomic pid_t tid; };

static void *wait_in_set(void *arg)
{
	struct waiter *w = arg;
	struct epoll_event event;
	w->tid = syscall(SYS_gettid);
	atomic_fetch_add(&waiting, 1);
	if (epoll_wait(w->set, &event, 1, -1) == 1 && event.data.u32 == EVENT)
		atomic_fetch_add(&woken, 1);
	return 0;
}

/* How many of four threads, each with a set of its own, one event wakes. */
static void woken_by_one(const char *name, unsigned kind)
{
	int event = MUST(eventfd(0, EFD_NONBLOCK)), end = MUST(eventfd(0, EFD_NONBLOCK));
	struct waiter waiters[4];
	pthread_t threads[4];
	waiting = woken = 0;
	for (int i = 0; i < 4; i++) {
		waiters[i].set = MUST(epoll_create1(0));
		struct epoll_event e = { EPOLLIN | kind, { .u32 = EVENT } }, last = { EPOLLIN, { .u32 = END } };
		MUST(epoll_ctl(waiters[i].set, EPOLL_CTL_ADD, event, &e));
		MUST(epoll_ctl(waiters[i].set, EPOLL_CTL_ADD, end, &last));
		pthread_create(&threads[i], 0, wait_in_set, &waiters[i]);
	}
	while (waiting < 4)
		sched_yield();
	for (int i = 0; i < 4; i++)
		until_in_call(getpid(), waiters[i].tid, SYS_epoll_wait);
	uint64_t one = 1;
	MUST(write(event, &one, 8));
	/* Until those that it woke have ended, and the others sleep. */
	for (int i = 0; i < 4; i++)
		until_in_call(getpid(), waiters[i].tid, SYS_epoll_wait);
	MUST(write(end, &one, 8));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
	say("%s: %d of 4 woken", name, woken);
	for (int i = 0; i < 4; i++)
		close(waiters[i].set);
	close(event);
	close(end);
}

static void nested_sets(void)
{
	struct epoll_event e = { EPOLLIN };
	int event = MUST(eventfd(0, EFD_NONBLOCK)), sets[5], below = event;
	for (int i = 0; i < 5; i++) {
		sets[i] = MUST(epoll_create1(0));
		MUST(epoll_ctl(sets[i], EPOLL_CTL_ADD, below, &e));
		below = sets[i];
	}
	TRY(epoll_wait(sets[4], &e, 1, 0));
	pid_t child = MUST(fork());
	if (child == 0) {
		until_in_call(getppid(), getppid(), SYS_epoll_wait);
		uint64_t one = 1;
		MUST(write(event, &one, 8));
		_exit(0);
	}
	TRY(epoll_wait(sets[4], &e, 1, 600000));
	struct pollfd p = { sets[4], POLLIN };
	TRY(poll(&p, 1, 0));
	uint64_t value;
	MUST(read(event, &value, 8));
	TRY(poll(&p, 1, 0));
	TRY(epoll_wait(sets[4], &e, 1, 0));
	MUST(waitpid(child, 0, 0));
	/* A timer at the bottom. */
	int timer = MUST(timerfd_create(CLOCK_MONOTONIC, 0));
	struct itimerspec soon = { { 0, 0 }, { 0, 50000000 } };
	e.events = EPOLLIN;
	MUST(epoll_ctl(sets[0], EPOLL_CTL_ADD, timer, &e));
	MUST(timerfd_settime(timer, 0, &soon, 0));
	TRY(epoll_wait(sets[4], &e, 1, 600000));
	MUST(timerfd_settime(timer, 0, &soon, 0));
	TRY(poll(&p, 1, 600000));
	MUST(read(timer, &value, 8));
	TRY(poll(&p, 1, 0));
	/* A closed set in the middle makes room. */
	int top = MUST(epoll_create1(0));
	e.events = EPOLLIN;
	TRY(epoll_ctl(top, EPOLL_CTL_ADD, sets[4], &e));
	close(sets[2]);
	TRY(epoll_ctl(top, EPOLL_CTL_ADD, sets[4], &e));
}

/* A closed file leaves its sets, whatever else is in them. */
static void closed_files(void)
{
	int set = MUST(epoll_create1(0)), outer = MUST(epoll_create1(0));
	struct epoll_event e = { EPOLLIN };
	struct itimerspec soon = { { 0, 0 }, { 0, 1 } };
	for (int round = 0; round < 1000; round++) {
		int timer = MUST(timerfd_create(CLOCK_MONOTONIC, 0)), in = MUST(inotify_init1(0)), event = MUST(eventfd(1, 0));
		int inner = MUST(epoll_create1(0)), all[] = { timer, in, event, inner };
		MUST(timerfd_settime(timer, 0, &soon, 0));
		for (int i = 0; i < 4; i++)
			MUST(epoll_ctl(set, EPOLL_CTL_ADD, all[i], &e));
		MUST(epoll_ctl(outer, EPOLL_CTL_ADD, event, &e));
		MUST(epoll_ctl(inner, EPOLL_CTL_ADD, event, &e));
		if (round == 0) {
			int again = MUST(dup(event));
			close(event);
			TRY(epoll_wait(outer, &e, 1, 0));
			close(again);
			TRY(epoll_wait(outer, &e, 1, 0));
		}
		for (int i = 0; i < 4; i++)
			close(all[i]);
	}
	TRY(epoll_wait(set, &e, 1, 0));
	TRY(epoll_wait(outer, &e, 1, 0));
	close(set);
	close(outer);
}

static void show(const struct signalfd_siginfo *s)
{
	say("signal %d code %d from us: %s, int %d", s->ssi_signo, s->ssi_code, s->ssi_pid == getpid() ? "yes" : "no",
		s->ssi_code == SI_QUEUE ? s->ssi_int : 0);
}

static int signal_file;

static _Atomic pid_t reader;

static void *read_signal(void *arg)
{
	struct signalfd_siginfo s;
	reader = syscall(SYS_gettid);
	int got = read(signal_file, &s, sizeof s);
	say("a thread reads %d", got);
	if (got == sizeof s)
		show(&s);
	return 0;
}

static void signals_at_descriptors(void)
{
	sigset_t set, one;
	struct signalfd_siginfo s[4];
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1), sigaddset(&set, SIGUSR2), sigaddset(&set, SIGRTMIN), sigaddset(&set, SIGCHLD), sigaddset(&set, SIGKILL);
	MUST(sigprocmask(SIG_BLOCK, &set, 0));
	signal_file = MUST(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
	TRY(read(signal_file, s, sizeof s));
	TRY(read(signal_file, s, 127));
	TRY(write(signal_file, s, sizeof s));
	struct pollfd p = { signal_file, POLLIN };
	TRY(poll(&p, 1, 0));
	MUST(kill(getpid(), SIGUSR1));
	TRY(poll(&p, 1, 0));
	TRY(read(signal_file, s, sizeof s) / sizeof *s);
	show(s);
	union sigval v = { .sival_int = 7 };
	MUST(sigqueue(getpid(), SIGRTMIN, v));
	v.sival_int = 8;
	MUST(sigqueue(getpid(), SIGRTMIN, v));
	MUST(raise(SIGUSR2));
	TRY(read(signal_file, s, sizeof s) / sizeof *s);
	for (int i = 0; i < 3; i++)
		show(&s[i]);
	TRY(read(signal_file, s, sizeof s));
	sigemptyset(&one), sigaddset(&one, SIGUSR1);
	HOLDS(signalfd(signal_file, &one, 0) == signal_file);
	MUST(raise(SIGUSR2));
	TRY(poll(&p, 1, 0));
	HOLDS(signalfd(signal_file, &set, 0) == signal_file);
	TRY(poll(&p, 1, 0));
	TRY(read(signal_file, s, sizeof s) / sizeof *s);
	/* A child's end, by epoll. */
	int e = MUST(epoll_create1(0));
	struct epoll_event event = { EPOLLIN };
	MUST(epoll_ctl(e, EPOLL_CTL_ADD, signal_file, &event));
	pid_t child = MUST(fork());
	if (child == 0) {
		until_in_call(getppid(), getppid(), SYS_epoll_wait);
		_exit(5);
	}
	TRY(epoll_wait(e, &event, 1, 600000));
	TRY(read(signal_file, s, sizeof s) / sizeof *s);
	HOLDS(s[0].ssi_signo == SIGCHLD && s[0].ssi_pid == child && s[0].ssi_status == 5 && s[0].ssi_code == CLD_EXITED);
	MUST(waitpid(child, 0, 0));
	/* A thread that waits. */
	fcntl(signal_file, F_SETFL, 0);
	pthread_t thread;
	pthread_create(&thread, 0, read_signal, 0);
	while (!reader)
		sched_yield();
	until_in_call(getpid(), reader, SYS_read);
	MUST(kill(getpid(), SIGUSR1));
	pthread_join(thread, 0);
	/* Two processes put it in sets, and a third closes it last. */
	pid_t last = MUST(fork());
	if (last == 0) {
		pid_t second = MUST(fork());
		if (second == 0) {
			int other = MUST(epoll_create1(0));
			MUST(epoll_ctl(other, EPOLL_CTL_ADD, signal_file, &event));
			MUST(raise(SIGUSR1));
			TRY(epoll_wait(other, &event, 1, 0));
			_exit(0);
		}
		MUST(waitpid(second, 0, 0));
		pause();
	}
	until_in_call(last, last, SYS_pause);
	MUST(kill(getpid(), SIGUSR1));
	TRY(epoll_wait(e, &event, 1, 0));
	close(signal_file);
	TRY(epoll_wait(e, &event, 1, 0));
	MUST(kill(last, SIGKILL));
	MUST(waitpid(last, 0, 0));
	TRY(epoll_wait(e, &event, 1, 0));
	struct pollfd all = { e, POLLIN };
	TRY(poll(&all, 1, 0));
	sigemptyset(&one), sigaddset(&one, SIGUSR1);
	HOLDS(sigwaitinfo(&one, 0) == SIGUSR1);
	close(e);
}

/* A list of mounts tells of each change once. */
static void changes_of_mounts(void)
{
	struct epoll_event event = { EPOLLPRI };
	int list = MUST(open("/proc/mounts", O_RDONLY)), set = MUST(epoll_create1(0));
	struct pollfd p = { list, POLLIN | POLLPRI };
	TRY(epoll_ctl(set, EPOLL_CTL_ADD, list, &event));
	TRY(epoll_wait(set, &event, 1, 0));
	MUST(mkdir("/tmp/changes", 0700));
	MUST(mount("none", "/tmp/changes", "tmpfs", 0, NULL));
	TRY(epoll_wait(set, &event, 1, 600000));
	say("events %#x", event.events);
	TRY(epoll_wait(set, &event, 1, 0));
	TRY(poll(&p, 1, 0));
	say("quiet: %#x", p.revents);
	MUST(umount("/tmp/changes"));
	TRY(poll(&p, 1, 600000));
	say("changed: %#x", p.revents);
	TRY(epoll_wait(set, &event, 1, 0));
	MUST(rmdir("/tmp/changes"));
	close(list);
	close(set);
}

static atomic_int ticks, last_overrun;
static void on_tick(int signal, siginfo_t *info, void *frame)
{
	ticks++;
}

static double used(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void burn(double seconds)
{
	double until = used() + seconds;
	while (used() < until)
		;
}

/* Until a timer has told so often, which a CPU that was taken away may see late. */
static void burn_to_ticks(int count)
{
	for (int i = 0; i < 6000 && ticks < count; i++)
		burn(0.01);
}

static atomic_int enough;

static void *burn_until_enough(void *unused)
{
	(void)unused;
	while (!enough)
		;
	return NULL;
}

static void *burn_in_thread(void *arg)
{
	burn(0.3);
	burn_to_ticks(1);
	return 0;
}

static void cpu_clocks(void)
{
	struct sigaction action = { .sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(SIGUSR1, &action, 0);
	sigset_t set;
	sigemptyset(&set), sigaddset(&set, SIGUSR1);
	MUST(sigprocmask(SIG_UNBLOCK, &set, 0));
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	clockid_t clocks[] = { CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID };
	for (int i = 0; i < 2; i++) {
		timer_t timer;
		MUST(timer_create(clocks[i], &event, &timer));
		struct itimerspec it = { { 0, 0 }, { 0, 100000000 } }, left;
		/* A machine that is busy takes the CPU away in between: that is used time, too. */
		double start;
		int tries = 0;
		do {
			ticks = 0;
			start = used();
			MUST(timer_settime(timer, 0, &it, 0));
			MUST(timer_gettime(timer, &left));
		} while (left.it_value.tv_nsec == 0 && tries++ < 1000);
		HOLDS(left.it_value.tv_sec == 0 && left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 100000000);
		sleep_ms(200);
		HOLDS(ticks == 0 || used() - start > 0.09);
		burn(0.05);
		HOLDS(ticks == 0 || used() - start > 0.09);
		burn(0.15);
		burn_to_ticks(1);
		HOLDS(ticks == 1);
		MUST(timer_gettime(timer, &left));
		HOLDS(left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0);
		it.it_interval.tv_nsec = 50000000, it.it_value.tv_nsec = 50000000;
		ticks = 0;
		start = used();
		MUST(timer_settime(timer, 0, &it, 0));
		burn(0.52);
		burn_to_ticks(2);
		HOLDS(ticks >= 2 && ticks <= (used() - start) / 0.05 + 1);
		/* An absolute time that has passed. */
		it.it_interval.tv_nsec = 0, it.it_value.tv_nsec = 1;
		ticks = 0;
		MUST(timer_settime(timer, TIMER_ABSTIME, &it, 0));
		burn(0.05);
		burn_to_ticks(1);
		HOLDS(ticks == 1);
		MUST(timer_delete(timer));
	}
	/* Another thread's work is the process's. */
	timer_t timer;
	pthread_t thread;
	MUST(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer));
	struct itimerspec it = { { 0, 0 }, { 0, 100000000 } };
	ticks = 0;
	MUST(timer_settime(timer, 0, &it, 0));
	pthread_create(&thread, 0, burn_in_thread, 0);
	pthread_join(thread, 0);
	HOLDS(ticks == 1);
	MUST(timer_delete(timer));
	pthread_create(&thread, 0, burn_until_enough, 0);
	struct timespec span = { 0, 100000000 };
	TRY(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &span, 0));
	enough = 1;
	pthread_join(thread, 0);
}

/* The number of a clock on the CPU time of a process or, with bit 2, of a thread: all of it in ticks (0), user time (1),
   all of it (2). */
#define CPU_CLOCK(number, bits) ((clockid_t)(~(unsigned)(number) << 3 | (bits)))

static double shown(clockid_t clock)
{
	struct timespec t;
	MUST(clock_gettime(clock, &t));
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Both go on until a clock shows that much more. Linux's clocks on user time count ticks, and a
   tick may always come while another task runs: some time that was used may not show. */
static void in_user_mode(clockid_t clock, double seconds)
{
	double until = shown(clock) + seconds;
	do {
		for (volatile int i = 0; i < 1000000; i++)
			;
	} while (shown(clock) < until);
}

static void in_the_kernel(clockid_t clock, double seconds)
{
	static char bytes[1 << 20];
	int zeros = MUST(open("/dev/zero", O_RDONLY));
	double until = shown(clock) + seconds;
	do
		MUST(read(zeros, bytes, sizeof bytes));
	while (shown(clock) < until);
	close(zeros);
}

/* A thread sleeps by the CPU time of another one. */
static void sleep_by_a_thread(void)
{
	pthread_t thread;
	clockid_t clock;
	struct timespec span = { 0, 50000000 };
	enough = 0;
	pthread_create(&thread, NULL, burn_until_enough, NULL);
	pthread_getcpuclockid(thread, &clock);
	double before = shown(clock);
	TRY(syscall(SYS_clock_nanosleep, clock, 0, &span, NULL));
	HOLDS(shown(clock) - before >= 0.05);
	TRY(syscall(SYS_clock_nanosleep, clock, TIMER_ABSTIME, &span, NULL));
	enough = 1;
	pthread_join(thread, NULL);
}

static void *by_own_number(void *unused)
{
	clockid_t clock = CPU_CLOCK(syscall(SYS_gettid), 2);
	struct timespec t = { 0, 1 };
	timer_t timer;
	(void)unused;
	TRY(clock_gettime(clock, &t));
	TRY(clock_getres(clock, &t));
	TRY(syscall(SYS_timer_create, clock, NULL, &timer));
	TRY(syscall(SYS_clock_nanosleep, clock, 0, &t, NULL));
	return NULL;
}

/* The clocks of other processes, and of one by the number of a thread that is not its first. */
static void clocks_of_others(void)
{
	pthread_t thread;
	siginfo_t info;
	struct timespec span = { 0, 50000000 };
	MUST(pthread_create(&thread, NULL, by_own_number, NULL));
	pthread_join(thread, NULL);
	pid_t child = MUST(fork());
	if (child == 0)
		for (;;)
			;
	TRY(syscall(SYS_clock_nanosleep, CPU_CLOCK(child, 2), 0, &span, NULL));
	HOLDS(shown(CPU_CLOCK(child, 2)) >= 0.05);
	MUST(kill(child, SIGKILL));
	MUST(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
	HOLDS(shown(CPU_CLOCK(child, 2)) >= 0.05);
	TRY(clock_getres(CPU_CLOCK(child, 2), &span));
	TRY(clock_gettime(CPU_CLOCK(child, 6), &span));
	MUST(waitpid(child, NULL, 0));
	TRY(clock_gettime(CPU_CLOCK(child, 2), &span));
	TRY(syscall(SYS_clock_nanosleep, CPU_CLOCK(child, 2), 0, &span, NULL));
}

static void parts_of_cpu_time(void)
{
	struct timespec t;
	timer_t timer;
	for (int bits = 0; bits < 8; bits++) {
		pid_t numbers[] = { 0, getpid(), getppid(), 999999 };
		say("kind %d", bits);
		for (int i = 0; i < 4; i++) {
			TRY(clock_gettime(CPU_CLOCK(numbers[i], bits), &t));
			t.tv_nsec = 0;
			TRY(clock_getres(CPU_CLOCK(numbers[i], bits), &t));
			say("resolution %ld", t.tv_nsec);
			TRY(syscall(SYS_clock_settime, CPU_CLOCK(numbers[i], bits), &t));
		}
		for (int i = 0; i < 2 && (bits & 3) != 3; i++) {
			DO(syscall(SYS_timer_create, CPU_CLOCK(numbers[i], bits), NULL, &timer));
			if (bits & 4)
				TRY(syscall(SYS_clock_nanosleep, CPU_CLOCK(numbers[i], bits), 0, &t, NULL));
		}
		for (int flags = 0; flags < 2 && bits != 3; flags++)
			TRY(syscall(SYS_clock_nanosleep, CPU_CLOCK(999999, bits), flags, &t, NULL));
	}
	for (int thread = 0; thread < 2; thread++) {
		clockid_t user = CPU_CLOCK(0, 1 | thread << 2), all = CPU_CLOCK(0, thread << 2);
		double before = shown(user), before_all = shown(all);
		in_the_kernel(all, 0.3);
		HOLDS(shown(user) - before < (shown(all) - before_all) / 2);
		before = shown(user), before_all = shown(all);
		in_user_mode(all, 0.3);
		HOLDS(shown(user) - before > (shown(all) - before_all) / 2);
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
		struct itimerspec it = { { 0, 0 }, { 0, 300000000 } };
		MUST(timer_create(user, &event, &timer));
		ticks = 0;
		MUST(timer_settime(timer, 0, &it, NULL));
		in_the_kernel(all, 0.4);
		HOLDS(ticks == 0);
		while (!ticks)
			in_user_mode(all, 0.1);
		MUST(timer_delete(timer));
	}
}

static void overruns(void)
{
	sigset_t set;
	sigemptyset(&set), sigaddset(&set, SIGUSR2);
	MUST(sigprocmask(SIG_BLOCK, &set, 0));
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
	timer_t timer;
	MUST(timer_create(CLOCK_REALTIME, &event, &timer));
	struct itimerspec it = { { 0, 1 }, { 0, 1 } };
	MUST(timer_settime(timer, TIMER_ABSTIME, &it, 0));
	sleep_ms(20);
	siginfo_t info;
	TRY(sigwaitinfo(&set, &info) == SIGUSR2);
	HOLDS(info.si_overrun == 0x7fffffff);
	HOLDS(timer_getoverrun(timer) == 0x7fffffff);
	MUST(timer_delete(timer));
}

static atomic_int thread_number;
static void *spin(void *arg)
{
	thread_number = syscall(SYS_gettid);
	while (!stop)
		;
	return 0;
}

static char state_of(int number)
{
	char path[64], text[512];
	sprintf(path, "/proc/%d/stat", number);
	int f = MUST(open(path, O_RDONLY));
	text[MUST(read(f, text, sizeof text - 1))] = 0;
	close(f);
	return strrchr(text, ')')[2];
}

static void threads_numbers(void)
{
	int pipes[2];
	MUST(pipe(pipes));
	pid_t child = MUST(fork());
	if (child == 0) {
		pthread_t thread;
		pthread_create(&thread, 0, spin, 0);
		while (!thread_number)
			;
		int number = thread_number;
		MUST(write(pipes[1], &number, sizeof number));
		pause();
		_exit(3);
	}
	int number;
	MUST(read(pipes[0], &number, sizeof number));
	until_state(child, child, 'S');
	say("main thread %c, other %c", state_of(child), state_of(number));
	siginfo_t info = { .si_code = SI_QUEUE, .si_signo = SIGTERM };
	TRY(syscall(SYS_rt_sigqueueinfo, number, 0, &info));
	TRY(kill(number, 0));
	HOLDS(getpgid(number) == getpgid(child));
	TRY(setpgid(number, 0));
	struct rlimit limit;
	TRY(prlimit(number, RLIMIT_NOFILE, 0, &limit));
	TRY(syscall(SYS_rt_sigqueueinfo, number, SIGTERM, &info));
	int status;
	MUST(waitpid(child, &status, 0));
	say_status("the child", status);
}

int main(void)
{
	/* Standard input has ended: that is nothing to standard output. */
	struct pollfd output = { 1, 0, 0 };
	TRY(poll(&output, 1, 0));
	say("standard output: %x", output.revents);
	say("== one event"); woken_by_one("sets", 0); woken_by_one("exclusive sets", EPOLLEXCLUSIVE);
	say("== nested sets"); nested_sets();
	say("== closed files"); closed_files();
	say("== signals at descriptors"); signals_at_descriptors();
	say("== mounts"); changes_of_mounts();
	say("== CPU clocks"); cpu_clocks();
	say("== parts of CPU time"); parts_of_cpu_time(); sleep_by_a_thread(); clocks_of_others();
	say("== overruns"); overruns();
	say("== threads' numbers"); threads_numbers();
	return 0;
}
