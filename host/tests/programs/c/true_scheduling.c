/* How tasks share a CPU: policies and priorities, nice values, who may change them, limits and signals that follow
 * CPU time. */
#include "say.h"
#include "blocked.h"
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

struct attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

/* What children leave here is seen by all. */
static struct shared {
	volatile int log[64], used, flag;
	volatile double cpu[2];
} *shared;

static void note(int what) { shared->log[__atomic_fetch_add(&shared->used, 1, __ATOMIC_SEQ_CST)] = what; }

static void say_log(const char *name)
{
	char line[400] = "";
	for (int i = 0; i < shared->used; i++)
		sprintf(line + strlen(line), " %d", shared->log[i]);
	say("%s:%s", name, line);
	shared->used = shared->flag = 0;
}

static int set(pid_t pid, int policy, int priority)
{
	struct sched_param p = { priority };
	return sched_setscheduler(pid, policy, &p);
}

static int set_param(pid_t pid, int priority)
{
	struct sched_param p = { priority };
	return sched_setparam(pid, &p);
}

static int param(pid_t pid)
{
	struct sched_param p = { -1 };
	return sched_getparam(pid, &p) ? -1 : p.sched_priority;
}

static void to_one_cpu(void)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	MUST(sched_setaffinity(0, sizeof one, &one));
}

/* Fields 18, 19, 40 and 41 of /proc/PID/stat: priority, nice value, real-time priority, policy. */
static void say_stat(const char *name, const char *path)
{
	char text[1024] = "", *at;
	int fd = MUST(open(path, O_RDONLY));
	read(fd, text, sizeof text - 1);
	close(fd);
	long field[42] = { 0 };
	at = strrchr(text, ')') + 4;
	for (int i = 4; i < 42; i++)
		field[i] = strtol(at, &at, 10);
	say("%s: stat %ld %ld %ld %ld", name, field[18], field[19], field[40], field[41]);
}

static void policies(void)
{
	struct timespec t;
	int all[] = { SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_BATCH, SCHED_IDLE, 6, 4, 7 };
	for (int i = 0; i < 8; i++) {
		int policy = all[i];
		say("policy %d: priorities %d to %d", policy, sched_get_priority_min(policy), sched_get_priority_max(policy));
		for (int priority = -1; priority <= 100; priority += priority == 1 ? 97 : 1) {
			int r = set(0, policy, priority);
			say("  priority %d: %d %s, now %d with %d", priority, r, r ? strerrorname_np(errno) : "", sched_getscheduler(0), param(0));
		}
	}
	MUST(set(0, SCHED_OTHER, 0));
	TRY(set_param(0, 1));
	TRY(set(0, SCHED_FIFO, 7));
	TRY(set_param(0, 0));
	TRY(set_param(0, 9));
	TRY(param(0));
	say_stat("fifo", "/proc/self/stat");
	TRY(sched_rr_get_interval(0, &t));
	say("interval %ld.%09ld", (long)t.tv_sec, t.tv_nsec);
	TRY(set(0, SCHED_RR, 7));
	say_stat("rr", "/proc/self/stat");
	TRY(sched_rr_get_interval(0, &t));
	say("interval %ld.%09ld", (long)t.tv_sec, t.tv_nsec);
	TRY(sched_rr_get_interval(-1, &t));
	TRY(setpriority(PRIO_PROCESS, 0, 5));
	TRY(getpriority(PRIO_PROCESS, 0));
	struct attr a = { .size = sizeof a };
	TRY(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0));
	say("policy %u flags %lu nice %d priority %u", a.policy, (long)a.flags, a.nice, a.priority);
	MUST(set(0, SCHED_OTHER, 0));
	TRY(getpriority(PRIO_PROCESS, 0));
	TRY(setpriority(PRIO_PROCESS, 0, 0));
	a = (struct attr){ .size = sizeof a, .policy = SCHED_RR, .priority = 3, .flags = 1 };
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	TRY(sched_getscheduler(0));
	a = (struct attr){ .size = sizeof a, .policy = SCHED_RR };
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	a = (struct attr){ .size = sizeof a, .policy = SCHED_FIFO, .priority = 100 };
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	a = (struct attr){ .size = sizeof a, .priority = 4, .flags = 8 };
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	TRY(sched_getscheduler(0));
	TRY(param(0));
	a = (struct attr){ .size = sizeof a, .policy = SCHED_FIFO, .flags = 16 };
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	TRY(sched_getscheduler(0));
	a = (struct attr){ .size = sizeof a, .nice = 4 };
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	TRY(getpriority(PRIO_PROCESS, 0));
	TRY(setpriority(PRIO_PROCESS, 0, 0));
	MUST(set(0, SCHED_FIFO, 1));
	IN_CHILD("child", TRY(set_param(getppid(), 5)));
	TRY(param(0));
	MUST(set(0, SCHED_OTHER, 0));
}

/* What a child has of a parent with this. */
static void child_of(int policy, int priority, int nice, int reset)
{
	MUST(setpriority(PRIO_PROCESS, 0, nice));
	MUST(set(0, policy | reset, priority));
	int r = sched_getscheduler(0);
	pid_t p = MUST(fork());
	if (!p) {
		say("of %d: child has %d with %d, nice %d", r, sched_getscheduler(0), param(0), getpriority(PRIO_PROCESS, 0));
		_exit(0);
	}
	MUST(waitpid(p, 0, 0));
	MUST(set(0, SCHED_OTHER, 0));
	MUST(setpriority(PRIO_PROCESS, 0, 0));
}

static void children(void)
{
	for (int i = 0; i < 2; i++) {
		int reset = i ? SCHED_RESET_ON_FORK : 0;
		child_of(SCHED_FIFO, 30, -5, reset);
		child_of(SCHED_RR, 99, 5, reset);
		child_of(SCHED_OTHER, 0, -5, reset);
		child_of(SCHED_BATCH, 0, -7, reset);
		child_of(SCHED_IDLE, 0, 3, reset);
	}
}

static void write_knob(const char *path, const char *value)
{
	char text[64] = "";
	int fd = MUST(open(path, O_RDWR));
	ssize_t n = write(fd, value, strlen(value));
	int error = errno;
	close(fd);
	fd = MUST(open(path, O_RDONLY));
	read(fd, text, sizeof text - 1);
	close(fd);
	text[strcspn(text, "\n")] = 0;
	say("%s: %s gives %zd %s, now %s", path + 22, value, n, n < 0 ? strerrorname_np(error) : "", text);
}

#define PERIOD "/proc/sys/kernel/sched_rt_period_us"
#define RUNTIME "/proc/sys/kernel/sched_rt_runtime_us"
#define SLICE "/proc/sys/kernel/sched_rr_timeslice_ms"

static void knobs(void)
{
	struct timespec t;
	write_knob(PERIOD, "0");
	write_knob(PERIOD, "-1");
	write_knob(PERIOD, "900000");
	write_knob(PERIOD, "2000000");
	write_knob(RUNTIME, "2000001");
	write_knob(RUNTIME, "1500000");
	write_knob(RUNTIME, "x");
	write_knob(RUNTIME, "-2");
	write_knob(RUNTIME, "-1");
	write_knob(RUNTIME, "950000");
	write_knob(PERIOD, "1000000");
	write_knob(SLICE, "40");
	MUST(set(0, SCHED_RR, 1));
	TRY(sched_rr_get_interval(0, &t));
	say("interval %ld.%09ld", (long)t.tv_sec, t.tv_nsec);
	write_knob(SLICE, "0");
	write_knob(SLICE, "-1");
	TRY(sched_rr_get_interval(0, &t));
	say("interval %ld.%09ld", (long)t.tv_sec, t.tv_nsec);
	MUST(set(0, SCHED_OTHER, 0));
}

static void zombie(void)
{
	siginfo_t i;
	pid_t p = MUST(fork());
	if (!p) {
		set(0, SCHED_RR, 12);
		setpriority(PRIO_PROCESS, 0, 7);
		_exit(0);
	}
	MUST(waitid(P_PID, p, &i, WEXITED | WNOWAIT));
	say("a zombie has policy %d, priority %d, nice %d", sched_getscheduler(p), param(p), getpriority(PRIO_PROCESS, p));
	TRY(set(p, SCHED_BATCH, 0));
	TRY(setpriority(PRIO_PROCESS, p, 3));
	TRY(syscall(SYS_ioprio_set, 1, p, (2 << 13) | 3));
	TRY(syscall(SYS_ioprio_get, 1, p));
	cpu_set_t cpus;
	HOLDS(sched_getaffinity(p, sizeof cpus, &cpus) == 0 && CPU_ISSET(0, &cpus));
	say("and now policy %d, priority %d, nice %d", sched_getscheduler(p), param(p), getpriority(PRIO_PROCESS, p));
	char path[40];
	sprintf(path, "/proc/%d/stat", p);
	say_stat("zombie", path);
	MUST(waitpid(p, 0, 0));
	TRY(sched_getscheduler(p));
	TRY(getpriority(PRIO_PROCESS, p));
}

/* A user sets the I/O priority of a group: first comes the newest process, which is root's, and ends the call. User 0
 * is root there, but the caller's own where the priority is read. */
static void group_of_two_users(void)
{
	int start[2];
	MUST(pipe(start));
	MUST(setpgid(0, 0));
	pid_t user = MUST(fork());
	if (!user) {
		char word;
		MUST(setuid(65534));
		MUST(read(start[0], &word, 1));
		TRY(syscall(SYS_ioprio_set, 2, 0, 2 << 13 | 7));
		TRY(syscall(SYS_ioprio_get, 1, 0));
		TRY(syscall(SYS_ioprio_set, 3, 0, 2 << 13 | 6));
		TRY(syscall(SYS_ioprio_get, 1, 0));
		TRY(syscall(SYS_ioprio_set, 3, 65534, 2 << 13 | 5));
		TRY(syscall(SYS_ioprio_get, 1, 0));
		TRY(syscall(SYS_ioprio_get, 3, 0));
		_exit(0);
	}
	pid_t root = MUST(fork());
	if (!root)
		for (;;)
			pause();
	MUST(write(start[1], "", 1));
	MUST(waitpid(user, 0, 0));
	TRY(syscall(SYS_ioprio_get, 1, root));
	TRY(syscall(SYS_ioprio_set, 2, 0, 2 << 13 | 3));
	TRY(syscall(SYS_ioprio_get, 1, root));
	kill(root, SIGKILL);
	MUST(waitpid(root, 0, 0));
}

/* As a user on a process of root's, and on its own. */
static void as_user(void)
{
	pid_t root = getppid();
	struct rlimit limit = { 20, 30 };
	MUST(setrlimit(RLIMIT_RTPRIO, &limit));
	MUST(setgid(65534));
	MUST(setuid(65534));
	struct attr a = { .size = sizeof a, .nice = 10 };
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	TRY(set_param(root, 0));
	TRY(set(root, SCHED_OTHER, 0));
	TRY(set(root, SCHED_BATCH, 0));
	TRY(set(root, SCHED_IDLE, 0));
	TRY(set(root, SCHED_FIFO, 1));
	TRY(syscall(SYS_sched_setattr, root, &a, 0));
	TRY(setpriority(PRIO_PROCESS, root, 10));
	TRY(sched_setaffinity(root, sizeof one, &one));
	TRY(syscall(SYS_ioprio_set, 1, root, (2 << 13) | 7));
	TRY(sched_getscheduler(root));
	TRY(param(root));
	TRY(getpriority(PRIO_PROCESS, root));
	say("priorities up to the limit");
	TRY(set(0, SCHED_FIFO, 21));
	TRY(set(0, SCHED_FIFO, 20));
	limit.rlim_cur = 10;
	MUST(setrlimit(RLIMIT_RTPRIO, &limit));
	TRY(set_param(0, 21));
	TRY(set_param(0, 19));
	TRY(set_param(0, 20));
	TRY(set(0, SCHED_RR, 11));
	TRY(set(0, SCHED_RR, 10));
	limit.rlim_cur = 0;
	MUST(setrlimit(RLIMIT_RTPRIO, &limit));
	TRY(set(0, SCHED_FIFO, 10));
	TRY(set(0, SCHED_RR, 9));
	TRY(set(0, SCHED_RR | SCHED_RESET_ON_FORK, 9));
	TRY(set(0, SCHED_RR, 9));
	TRY(set(0, SCHED_OTHER | SCHED_RESET_ON_FORK, 0));
	TRY(set(0, SCHED_RR | SCHED_RESET_ON_FORK, 9));
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	a.flags = 1;
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	a.nice = 0;
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	TRY(set(0, SCHED_IDLE | SCHED_RESET_ON_FORK, 0));
	TRY(set(0, SCHED_OTHER | SCHED_RESET_ON_FORK, 0));
}

/* Starts a child that waits for its turn with this priority. */
static pid_t start(int policy, int priority, void (*body)(int), int arg)
{
	pid_t p = MUST(fork());
	if (p)
		return p;
	MUST(set(0, policy, priority));
	body(arg);
	_exit(0);
}

static void all_gone(void)
{
	while (wait(0) > 0)
		;
}

static void notes(int what) { note(what); }

static void yields(int what)
{
	for (int i = 0; i < 3; i++) {
		note(what);
		sched_yield();
	}
}

static int ends[2];

static void reads(int what)
{
	char c;
	note(what);
	read(ends[0], &c, 1);
	note(what);
}

static void writes(int what)
{
	note(what);
	write(ends[1], "x", 1);
	note(what);
}

static void waits_for_flag(int what)
{
	while (!shared->flag)
		;
	note(what);
}

static void sets_flag(int what)
{
	note(what);
	shared->flag = 1;
}

static void sinks(int what)
{
	note(what);
	set_param(0, 15);
	note(what);
}

static void order(void)
{
	/* While this runs, none of the others does. */
	MUST(set(0, SCHED_FIFO, 90));
	start(SCHED_FIFO, 10, notes, 10);
	start(SCHED_FIFO, 30, notes, 30);
	start(SCHED_RR, 20, notes, 20);
	HOLDS(shared->used == 0);
	all_gone();
	say_log("by priority");
	start(SCHED_FIFO, 10, notes, 1);
	start(SCHED_FIFO, 10, notes, 2);
	start(SCHED_FIFO, 10, notes, 3);
	all_gone();
	say_log("in turn");
	start(SCHED_FIFO, 10, yields, 1);
	start(SCHED_RR, 10, yields, 2);
	start(SCHED_RR, 5, notes, 3);
	all_gone();
	say_log("yielding");
	MUST(pipe(ends));
	start(SCHED_FIFO, 40, reads, 1);
	start(SCHED_FIFO, 30, writes, 2);
	all_gone();
	say_log("the higher one wakes");
	start(SCHED_FIFO, 30, reads, 1);
	start(SCHED_FIFO, 30, writes, 2);
	all_gone();
	say_log("an equal one wakes");
	start(SCHED_FIFO, 30, sinks, 1);
	start(SCHED_FIFO, 20, notes, 2);
	start(SCHED_FIFO, 15, notes, 3);
	all_gone();
	say_log("one sinks");
	/* Equals of SCHED_RR take turns. */
	start(SCHED_RR, 10, waits_for_flag, 1);
	start(SCHED_RR, 10, sets_flag, 2);
	all_gone();
	say_log("round robin");
	/* Another raises and sinks those that wait. */
	pid_t a = start(SCHED_FIFO, 10, notes, 1), b = start(SCHED_FIFO, 20, notes, 2);
	sched_yield();
	MUST(set(a, SCHED_FIFO, 40));
	MUST(set(b, SCHED_FIFO, 30));
	pid_t c = start(SCHED_FIFO, 5, notes, 3);
	sched_yield();
	MUST(set(c, SCHED_RR, 35));
	all_gone();
	say_log("as another says");
	MUST(set(0, SCHED_OTHER, 0));
}

/* The owner of a lock goes before those in the middle while the highest waits for it. */
static void owns(int what)
{
	pthread_mutex_t *lock = (void *)(shared + 1);
	pthread_mutex_lock(lock);
	note(what);
	while (shared->flag < 2)
		sleep_ms(1);
	note(what);
	for (volatile long x = 0; x < 100000; x++)
		;
	note(what);
	pthread_mutex_unlock(lock);
	note(what);
}

static void wants(int what)
{
	pthread_mutex_t *lock = (void *)(shared + 1);
	note(what);
	pthread_mutex_lock(lock);
	note(what);
	pthread_mutex_unlock(lock);
}

/* As until_in_call, but lets all others run meanwhile. */
static void sleeps_in(pid_t pid, long number)
{
	char text[256];
	do {
		sleep_ms(1);
		of_task(pid, pid, "syscall", text, sizeof text);
	} while (atol(text) != number);
}

static void inherit_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(lock, &attr);
}

static void inherited(void)
{
	inherit_lock((void *)(shared + 1));
	MUST(set(0, SCHED_FIFO, 90));
	pid_t low = start(SCHED_OTHER, 0, owns, 1);
	char path[40];
	sprintf(path, "/proc/%d/stat", low);
	while (shared->used < 1)
		sleep_ms(1);
	pid_t high = start(SCHED_FIFO, 50, wants, 2);
	sleeps_in(high, SYS_futex);
	say_stat("owner", path);
	pid_t middle = start(SCHED_FIFO, 40, wants, 3);
	sleeps_in(middle, SYS_futex);
	/* The owner sleeps when the flag is set, so that it looks again, and its sleep ends before
	   another can run: this one keeps the CPU. */
	while (state_of_task(low, low) != 'S')
		sleep_ms(1);
	shared->flag = 2;
	while (state_of_task(low, low) != 'R')
		;
	start(SCHED_FIFO, 30, notes, 4);
	all_gone();
	say_log("inherited");
	MUST(set(0, SCHED_OTHER, 0));
}

#define LOCKS 3

/* Unlocks one lock each time that it is told to. */
static void owns_several(int unused)
{
	pthread_mutex_t *locks = (void *)(shared + 1);
	const int order[LOCKS] = { 1, 2, 0 };
	for (int i = 0; i < LOCKS; i++)
		pthread_mutex_lock(locks + i);
	note(LOCKS);
	for (int i = 0; i <= LOCKS; i++) {
		while (shared->flag <= i)
			sleep_ms(1);
		if (i == LOCKS)
			return;
		pthread_mutex_unlock(locks + order[i]);
		note(order[i]);
	}
}

static void wants_one_of_several(int which)
{
	pthread_mutex_t *locks = (void *)(shared + 1);
	pthread_mutex_lock(locks + which);
	pthread_mutex_unlock(locks + which);
}

/* The owner of several locks has the highest priority of the waiters for those that it still holds. */
static void inherited_by_lock(void)
{
	pthread_mutex_t *locks = (void *)(shared + 1);
	for (int i = 0; i < LOCKS; i++)
		inherit_lock(locks + i);
	MUST(set(0, SCHED_FIFO, 90));
	pid_t owner = start(SCHED_OTHER, 0, owns_several, 0);
	char path[40];
	sprintf(path, "/proc/%d/stat", owner);
	while (shared->used < 1)
		sleep_ms(1);
	for (int i = 0; i < LOCKS; i++) {
		sleeps_in(start(SCHED_FIFO, 20 + 10 * i, wants_one_of_several, i), SYS_futex);
		say_stat("owner of several", path);
	}
	for (int i = 0; i < LOCKS; i++) {
		shared->flag = i + 1;
		while (shared->used < i + 2)
			sleep_ms(1);
		say_stat("owner of fewer", path);
	}
	shared->flag = LOCKS + 1;
	all_gone();
	say_log("unlocked");
	MUST(set(0, SCHED_OTHER, 0));
}

/* One that never stops leaves something to the others. */
static void throttled(void)
{
	MUST(set(0, SCHED_FIFO, 90));
	start(SCHED_FIFO, 10, waits_for_flag, 1);
	start(SCHED_OTHER, 0, sets_flag, 2);
	all_gone();
	say_log("throttled");
	MUST(set(0, SCHED_OTHER, 0));
}

static double used(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Computes until both have used a second together. */
static void computes(int which)
{
	if (which)
		shared->flag = 1;
	while (!shared->flag)
		sched_yield();
	double begin = used(CLOCK_PROCESS_CPUTIME_ID);
	while (shared->cpu[0] + shared->cpu[1] < 1)
		shared->cpu[which] = used(CLOCK_PROCESS_CPUTIME_ID) - begin;
}

static double ratio(int nice, int other_policy, int other_nice)
{
	shared->cpu[0] = shared->cpu[1] = 0;
	shared->flag = 0;
	for (int i = 0; i < 2; i++) {
		if (MUST(fork()))
			continue;
		MUST(setpriority(PRIO_PROCESS, 0, i ? other_nice : nice));
		MUST(set(0, i ? other_policy : SCHED_OTHER, 0));
		computes(i);
		_exit(0);
	}
	all_gone();
	return shared->cpu[0] / (shared->cpu[1] + 1e-9);
}

/* Says whether the ratio is between these. A host that takes the CPU away for long does so from one
   of the two: after a wrong ratio the next two must be right. */
static void weigh(const char *what, double least, double most, int nice, int other_policy, int other_nice)
{
	double found = ratio(nice, other_policy, other_nice);
	int right = found > least && found < most;
	for (int i = 0; i < 2 && !right; i++) {
		double again = ratio(nice, other_policy, other_nice);
		if (again <= least || again >= most) {
			say("%s: %f, then %f", what, found, again);
			break;
		}
		right = i;
	}
	say("%s: %s", what, right ? "as it should be" : "NOT as it should be");
}

static void weights(void)
{
	weigh("the same", 0.5, 2, 0, SCHED_OTHER, 0);
	weigh("nicer by five", 1.5, 6, 0, SCHED_OTHER, 5);
	weigh("as nice as can be", 10, 1e18, 0, SCHED_OTHER, 19);
	weigh("idle", 10, 1e18, 0, SCHED_IDLE, 0);
	weigh("less nice", 4, 1e18, -10, SCHED_OTHER, 0);
	weigh("nicer by one", 1, 1e18, -2, SCHED_OTHER, -1);
}

static void spin(void)
{
	for (volatile long x = 0;; x++)
		;
}

static volatile int told;

static void on_limit(int s)
{
	struct rlimit limit;
	(void)s;
	getrlimit(RLIMIT_CPU, &limit);
	say("told of the limit, now %ld", (long)limit.rlim_cur);
	told++;
}

static void limits(void)
{
	struct rlimit one = { 1, RLIM_INFINITY }, none = { 0, 1 };
	IN_CHILD("one second of the parent", MUST(setrlimit(RLIMIT_CPU, &one)); IN_CHILD("child", spin()));
	IN_CHILD("no second", setrlimit(RLIMIT_CPU, &none); spin());
	IN_CHILD("no second with a handler", signal(SIGXCPU, on_limit); MUST(setrlimit(RLIMIT_CPU, &none)); spin());
}

static volatile int profiled[2];
static __thread int own;

static void on_profile(int s) { (void)s; profiled[own]++; }

static void *worker(void *arg)
{
	(void)arg;
	own = 1;
	while (profiled[0] + profiled[1] < 40)
		;
	return 0;
}

static void profile(void)
{
	pthread_t thread;
	signal(SIGPROF, on_profile);
	struct itimerval every = { { 0, 10000 }, { 0, 10000 } }, off = { 0 };
	MUST(pthread_create(&thread, 0, worker, 0));
	MUST(setitimer(ITIMER_PROF, &every, 0));
	MUST(pthread_join(thread, 0));
	MUST(setitimer(ITIMER_PROF, &off, 0));
	HOLDS(profiled[0] < 10);
}

static void slack(void)
{
	TRY(prctl(PR_SET_TIMERSLACK, 70000));
	IN_CHILD("slack of a child", TRY(prctl(PR_GET_TIMERSLACK)); TRY(prctl(PR_SET_TIMERSLACK, 90000));
		TRY(prctl(PR_GET_TIMERSLACK)); TRY(prctl(PR_SET_TIMERSLACK, 0)); TRY(prctl(PR_GET_TIMERSLACK)));
	TRY(prctl(PR_SET_TIMERSLACK, 0));
	TRY(prctl(PR_GET_TIMERSLACK));
	struct stat s;
	MUST(stat("/proc/self/timerslack_ns", &s));
	say("mode %o", s.st_mode);
	char path[40], text[40] = "";
	pid_t root = getpid();
	sprintf(path, "/proc/%d/timerslack_ns", root);
	int fd = MUST(open(path, O_RDWR));
	TRY(write(fd, "80000", 5));
	TRY(prctl(PR_GET_TIMERSLACK));
	TRY(write(fd, "x", 1));
	TRY(pread(fd, text, sizeof text, 0));
	say("%s", text);
	close(fd);
	fd = MUST(open(path, O_RDWR));
	TRY(write(fd, "0", 1));
	TRY(prctl(PR_GET_TIMERSLACK));
	IN_CHILD("user", MUST(setuid(65534)); int own = open(path, O_RDWR); TRY(read(own, text, 40)); TRY(write(own, "1", 1));
		own = MUST(open("/proc/self/timerslack_ns", O_RDWR)); TRY(write(own, "1", 1)); TRY(prctl(PR_GET_TIMERSLACK)));
	TRY(access("/proc/self/task/1/timerslack_ns", F_OK));
}

int main(void)
{
	shared = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	to_one_cpu();
	policies();
	children();
	knobs();
	zombie();
	IN_CHILD("user", as_user());
	IN_CHILD("group of two users", group_of_two_users());
	write_knob(RUNTIME, "-1");
	order();
	inherited();
	inherited_by_lock();
	write_knob(RUNTIME, "950000");
	throttled();
	weights();
	limits();
	profile();
	slack();
	return 0;
}
