/* Mutexes whose owner the kernel knows: PTHREAD_PRIO_INHERIT, robust ones, and the calls below them. */
#include "say.h"
#include "blocked.h"
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define ROUNDS 5000

static pthread_mutex_t mutex;
static long counter;

static const char *name(int error)
{
	return error ? strerrorname_np(error) : "0";
}

static int make(pthread_mutex_t *m, int type, int robust, int shared)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	pthread_mutexattr_settype(&a, type);
	if (robust)
		pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&a, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
	return pthread_mutex_init(m, &a);
}

static void *count(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		long seen = counter;
		if (i % 64 == 0)
			sched_yield();
		counter = seen + 1;
		pthread_mutex_unlock(&mutex);
	}
	return 0;
}

static atomic_int go, last, alarmed;
/* The thread that is not the first. */
static _Atomic pid_t other;

/* Until the first thread waits for a lock, or for a thread. */
static void until_it_waits(void)
{
	until_in_call(getpid(), getpid(), SYS_futex);
}

static void *hold(void *arg)
{
	pthread_mutex_lock(&mutex);
	go = 1;
	while (!last)
		sched_yield();
	until_it_waits();
	pthread_mutex_unlock(&mutex);
	return 0;
}

static void *die(void *arg)
{
	pthread_mutex_lock(&mutex);
	go = 1;
	until_it_waits();
	return 0;
}

static void mutexes(void)
{
	say("init: %s", name(make(&mutex, PTHREAD_MUTEX_NORMAL, 0, 0)));
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], 0, count, 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], 0);
	say("counted %ld", counter);
	pthread_create(threads, 0, hold, 0);
	while (!go)
		sched_yield();
	say("trylock: %s", name(pthread_mutex_trylock(&mutex)));
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 50000000;
	if (until.tv_nsec >= 1000000000)
		until.tv_sec++, until.tv_nsec -= 1000000000;
	say("timedlock: %s", name(pthread_mutex_timedlock(&mutex, &until)));
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += 50000000;
	if (until.tv_nsec >= 1000000000)
		until.tv_sec++, until.tv_nsec -= 1000000000;
	say("clocklock: %s", name(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until)));
	last = 1;
	say("lock: %s", name(pthread_mutex_lock(&mutex)));
	say("unlock: %s", name(pthread_mutex_unlock(&mutex)));
	pthread_join(threads[0], 0);
	make(&mutex, PTHREAD_MUTEX_ERRORCHECK, 0, 0);
	pthread_mutex_lock(&mutex);
	say("twice: %s", name(pthread_mutex_lock(&mutex)));
	pthread_mutex_unlock(&mutex);
	say("unlock of a free one: %s", name(pthread_mutex_unlock(&mutex)));
	make(&mutex, PTHREAD_MUTEX_RECURSIVE, 0, 0);
	pthread_mutex_lock(&mutex);
	say("again: %s", name(pthread_mutex_lock(&mutex)));
	pthread_mutex_unlock(&mutex);
	pthread_mutex_unlock(&mutex);
}

static void robust_mutexes(void)
{
	pthread_t thread;
	for (int late = 0; late < 2; late++) {
		make(&mutex, PTHREAD_MUTEX_NORMAL, 1, 0);
		go = 0;
		pthread_create(&thread, 0, die, 0);
		while (!go)
			sched_yield();
		if (late)
			pthread_join(thread, 0);
		say("owner dies %s: %s", late ? "before" : "while we wait", name(pthread_mutex_lock(&mutex)));
		say("consistent: %s", name(pthread_mutex_consistent(&mutex)));
		say("unlock: %s", name(pthread_mutex_unlock(&mutex)));
		say("lock: %s", name(pthread_mutex_lock(&mutex)));
		pthread_mutex_unlock(&mutex);
		if (!late)
			pthread_join(thread, 0);
	}
	pthread_mutex_t *m = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	make(m, PTHREAD_MUTEX_NORMAL, 1, 1);
	int pipes[2];
	char byte;
	MUST(pipe(pipes));
	pid_t child = MUST(fork());
	if (child == 0) {
		pthread_mutex_lock(m);
		MUST(write(pipes[1], "x", 1));
		pause();
		_exit(1);
	}
	MUST(read(pipes[0], &byte, 1));
	pid_t other = MUST(fork());
	if (other == 0) {
		until_in_call(getppid(), getppid(), SYS_futex);
		MUST(kill(child, SIGKILL));
		_exit(0);
	}
	say("another process's: %s", name(pthread_mutex_lock(m)));
	say("consistent: %s", name(pthread_mutex_consistent(m)));
	say("unlock: %s", name(pthread_mutex_unlock(m)));
	MUST(waitpid(child, 0, 0));
	MUST(waitpid(other, 0, 0));
}

static _Atomic unsigned word, second;

static long pi(void *at, int operation, void *time)
{
	return syscall(SYS_futex, at, operation, 0, time, 0, 0);
}

static void *lock_words(void *arg)
{
	MUST(pi(&second, FUTEX_LOCK_PI_PRIVATE, 0));
	other = syscall(SYS_gettid);
	go = 1;
	long got = pi(&word, FUTEX_LOCK_PI_PRIVATE, 0);
	say("the other thread: %ld %s", got, got ? strerrorname_np(errno) : "");
	MUST(pi(&word, FUTEX_UNLOCK_PI_PRIVATE, 0));
	MUST(pi(&second, FUTEX_UNLOCK_PI_PRIVATE, 0));
	return 0;
}

static void *leave_locked(void *arg)
{
	MUST(pi(&word, FUTEX_LOCK_PI_PRIVATE, 0));
	go = 1;
	/* With an argument: until a signal has come, too. */
	while (arg && !alarmed)
		sched_yield();
	until_it_waits();
	return 0;
}

static void on_alarm(int signal)
{
	alarmed = 1;
}

static void words(void)
{
	unsigned tid = syscall(SYS_gettid);
	TRY(pi(&word, FUTEX_UNLOCK_PI, 0));
	TRY(pi(&word, FUTEX_LOCK_PI, 0));
	HOLDS(word == tid);
	TRY(pi(&word, FUTEX_LOCK_PI, 0));
	TRY(pi(&word, FUTEX_TRYLOCK_PI, 0));
	TRY(pi(&word, FUTEX_UNLOCK_PI, 0));
	HOLDS(word == 0);
	TRY(pi(&word, FUTEX_TRYLOCK_PI_PRIVATE, 0));
	TRY(pi(&word, FUTEX_UNLOCK_PI_PRIVATE, 0));
	word = 999999;
	TRY(pi(&word, FUTEX_LOCK_PI, 0));
	TRY(pi(&word, FUTEX_UNLOCK_PI, 0));
	word = FUTEX_OWNER_DIED;
	TRY(pi(&word, FUTEX_LOCK_PI, 0));
	HOLDS(word == (FUTEX_OWNER_DIED | tid));
	TRY(pi(&word, FUTEX_UNLOCK_PI, 0));
	TRY(pi((char *)&word + 1, FUTEX_LOCK_PI, 0));
	TRY(pi(HOLE, FUTEX_LOCK_PI, 0));
	TRY(pi(HOLE, FUTEX_UNLOCK_PI, 0));
	struct timespec bad = { 0, -1 }, past = { 1, 0 };
	TRY(pi(&word, FUTEX_LOCK_PI, &bad));
	TRY(pi(&word, FUTEX_LOCK_PI | FUTEX_CLOCK_REALTIME, 0));
	TRY(syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 1, 0, 0, 0));
	/* Two that wait for each other. */
	pthread_t thread;
	word = second = go = 0;
	TRY(pi(&word, FUTEX_LOCK_PI_PRIVATE, 0));
	pthread_create(&thread, 0, lock_words, 0);
	while (!go)
		sched_yield();
	until_in_call(getpid(), other, SYS_futex);
	HOLDS(word == (tid | FUTEX_WAITERS));
	TRY(pi(&second, FUTEX_TRYLOCK_PI_PRIVATE, 0));
	TRY(pi(&second, FUTEX_LOCK_PI_PRIVATE, 0));
	long handed = pi(&word, FUTEX_UNLOCK_PI_PRIVATE, 0);
	pthread_join(thread, 0);
	HOLDS(handed == 0);
	/* An owner that ends without a word. */
	word = go = 0;
	pthread_create(&thread, 0, leave_locked, 0);
	while (!go)
		sched_yield();
	TRY(pi(&word, FUTEX_LOCK_PI_PRIVATE, 0));
	HOLDS((word & ~FUTEX_WAITERS) == (tid | FUTEX_OWNER_DIED));
	pthread_join(thread, 0);
	TRY(pi(&word, FUTEX_UNLOCK_PI_PRIVATE, 0));
	/* Time and signals. */
	word = go = 0;
	signal(SIGALRM, on_alarm);
	pthread_create(&thread, 0, leave_locked, &word);
	while (!go)
		sched_yield();
	TRY(pi(&word, FUTEX_LOCK_PI_PRIVATE, &past));
	struct itimerval soon = { { 0, 0 }, { 0, 50000 } };
	MUST(setitimer(ITIMER_REAL, &soon, 0));
	TRY(pi(&word, FUTEX_LOCK_PI_PRIVATE, 0));
	pthread_join(thread, 0);
	TRY(pi(&word, FUTEX_UNLOCK_PI_PRIVATE, 0));
}

/* Waiting for a word, and then for a lock. */
static _Atomic unsigned event, lock;
static atomic_int asleep, locked, begun;
/* Those that wait, in the order in which they began. */
static pid_t sleepers[4];

static long wait_then_lock(unsigned value, void *time, void *to)
{
	return syscall(SYS_futex, &event, FUTEX_WAIT_REQUEUE_PI_PRIVATE, value, time, to, 0);
}

static long send_on(unsigned wakes, long moves, void *to, unsigned value)
{
	return syscall(SYS_futex, &event, FUTEX_CMP_REQUEUE_PI_PRIVATE, wakes, moves, to, value);
}

static void will_sleep(void)
{
	sleepers[begun++] = syscall(SYS_gettid);
	asleep++;
}

/* Until as many threads wait as there are. */
static void until_asleep(int count)
{
	while (asleep < count)
		sched_yield();
	for (int i = 0; i < count; i++)
		until_in_call(getpid(), sleepers[i], SYS_futex);
}

static void *sent_on(void *arg)
{
	will_sleep();
	long r = wait_then_lock(0, 0, &lock);
	if (r || (lock & FUTEX_TID_MASK) != syscall(SYS_gettid)) {
		say("not locked: %ld %s", r, strerrorname_np(errno));
		return 0;
	}
	int seen = locked;
	sleep_ms(5);
	locked = seen + 1;
	pi(&lock, FUTEX_UNLOCK_PI_PRIVATE, 0);
	return 0;
}

static long late_result;
static int late_error;

static void *late(void *seconds)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += (long)seconds;
	will_sleep();
	errno = 0;
	late_result = wait_then_lock(0, &at, &lock);
	late_error = errno;
	return 0;
}

static void *pause_on_event(void *arg)
{
	will_sleep();
	syscall(SYS_futex, &event, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
	return 0;
}

/* Four threads wait to be sent on. */
static void four_wait(pthread_t threads[4])
{
	asleep = begun = locked = 0;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], 0, sent_on, 0);
	until_asleep(4);
}

static void sent_on_to_locks(void)
{
	pthread_t threads[4];
	struct timespec past = { 1, 0 };
	TRY(wait_then_lock(1, 0, &lock));
	TRY(wait_then_lock(0, 0, &event));
	TRY(wait_then_lock(0, &past, &lock));
	TRY(wait_then_lock(0, 0, (char *)&lock + 1));
	TRY(send_on(1, 1, &event, 0));
	TRY(send_on(0, 1, &lock, 0));
	TRY(send_on(2, 1, &lock, 0));
	TRY(send_on(1, -1, &lock, 0));
	TRY(send_on(1, 1, &lock, 5));
	TRY(send_on(1, 1, &lock, 0));
	/* The lock is ours; all come to have it in turn. */
	four_wait(threads);
	TRY(pi(&lock, FUTEX_LOCK_PI_PRIVATE, 0));
	TRY(syscall(SYS_futex, &event, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0));
	TRY(syscall(SYS_futex, &event, FUTEX_REQUEUE_PRIVATE, 0, 1, &second, 0));
	TRY(send_on(1, 1, &second, 0));
	TRY(send_on(1, 1, &lock, 0));
	sleep_ms(50);
	TRY(send_on(1, 100, &lock, 0));
	TRY(send_on(1, 100, &lock, 0));
	sleep_ms(100);
	HOLDS(lock == (syscall(SYS_gettid) | FUTEX_WAITERS));
	say("%d have had it", locked);
	TRY(pi(&lock, FUTEX_UNLOCK_PI_PRIVATE, 0));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
	say("%d have had it, it is %#x", locked, lock);
	/* No thread has it. */
	four_wait(threads);
	TRY(send_on(1, 100, &lock, 0));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
	say("%d have had it, it is %#x", locked, lock);
	/* One that gets it too late. On a busy machine its time may end before it is sent on: then
	   the next try has more. */
	TRY(pi(&lock, FUTEX_LOCK_PI_PRIVATE, 0));
	long sent = 0;
	for (long seconds = 1; sent == 0 && seconds <= 64; seconds *= 2) {
		asleep = begun = 0;
		pthread_create(&threads[0], 0, late, (void *)seconds);
		until_asleep(1);
		sent = send_on(1, 100, &lock, 0);
		pthread_join(threads[0], 0);
	}
	say("sent on: %ld", sent);
	say_result("late", late_result, late_error);
	TRY(pi(&lock, FUTEX_UNLOCK_PI_PRIVATE, 0));
	/* One that waits for no lock. */
	IN_CHILD("mixed", {
		asleep = begun = 0;
		pthread_create(&threads[0], 0, pause_on_event, 0);
		until_asleep(1);
		TRY(send_on(1, 100, &lock, 0));
		TRY(syscall(SYS_futex, &event, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0));
	});
}

/* In memory that two processes share. */
static _Atomic unsigned *between;

static void *lock_and_execute(void *arg)
{
	MUST(pi((void *)between, FUTEX_LOCK_PI, 0));
	until_in_call(getppid(), getppid(), SYS_futex);
	MUST(execl("/proc/self/exe", "true_mutexes", "stays", (char *)0));
	return 0;
}

/* The owner of a lock executes another program, while another process waits for the lock. */
static void locks_at_exec(void)
{
	unsigned tid = syscall(SYS_gettid);
	between = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	for (int by_thread = 0; by_thread < 2; by_thread++) {
		*between = 0;
		pid_t child = MUST(fork());
		if (child == 0) {
			pthread_t thread;
			if (!by_thread)
				lock_and_execute(0);
			pthread_create(&thread, 0, lock_and_execute, 0);
			pause();
		}
		while (!*between)
			sched_yield();
		say("%s executes a program", by_thread ? "another thread" : "the main thread");
		TRY(pi((void *)between, FUTEX_LOCK_PI, 0));
		HOLDS((*between & ~FUTEX_WAITERS) == (tid | FUTEX_OWNER_DIED));
		TRY(pi((void *)between, FUTEX_UNLOCK_PI, 0));
		MUST(kill(child, SIGKILL));
		MUST(waitpid(child, 0, 0));
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		pause();
	say("== mutexes"); mutexes();
	say("== robust mutexes"); robust_mutexes();
	say("== words"); words();
	say("== sent on"); sent_on_to_locks();
	say("== exec"); locks_at_exec();
	return 0;
}
