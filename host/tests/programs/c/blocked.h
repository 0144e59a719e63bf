/* Waits until another task is in a state or in a call, in place of a sleep that may be too short. Between its last
   word and that call it must not wait for anything else. */
#include <pthread.h>
#include <sched.h>

/* Reads a file of a task's in /proc; an empty text once it is gone. */
static inline void of_task(pid_t pid, pid_t tid, const char *name, char *text, int size)
{
	char path[96];
	snprintf(path, sizeof path, "/proc/%d/task/%d/%s", pid, tid, name);
	int fd = open(path, O_RDONLY), n = -1;
	if (fd >= 0) {
		n = read(fd, text, size - 1);
		close(fd);
	}
	text[n > 0 ? n : 0] = 0;
}

/* The state of a task: R, S, T and so on; 0 once it is gone. */
static inline char state_of_task(pid_t pid, pid_t tid)
{
	char text[512];
	of_task(pid, tid, "stat", text, sizeof text);
	char *behind = strrchr(text, ')');
	return behind ? behind[2] : 0;
}

/* Waits until a task is in this state, or gone. */
static inline void until_state(pid_t pid, pid_t tid, char state)
{
	for (;;) {
		char now = state_of_task(pid, tid);
		if (now == state || now == 0)
			return;
		sched_yield();
	}
}

/* Waits until a task sleeps in the call with this number, or is gone. */
static inline void until_in_call(pid_t pid, pid_t tid, long number)
{
	for (;;) {
		char text[256], *end;
		char state = state_of_task(pid, tid);
		if (state == 0)
			return;
		of_task(pid, tid, "syscall", text, sizeof text);
		long call = strtol(text, &end, 10);
		if (state == 'S' && end != text && call == number)
			return;
		sched_yield();
	}
}

static inline void until_blocked(pid_t pid)
{
	until_state(pid, pid, 'S');
}

static inline void *ring_once_asleep(void *milliseconds)
{
	long ms = (long)milliseconds;
	struct itimerval timer = { { 0, 0 }, { ms / 1000, ms % 1000 * 1000 } };
	until_blocked(getpid());
	setitimer(ITIMER_REAL, &timer, NULL);
	return NULL;
}

/* Sends SIGALRM `milliseconds` after the calling thread, the process's first, begins to sleep in a
   call. With a timer that the caller sets itself the signal may come before that. */
static inline void alarm_once_asleep(long milliseconds)
{
	sigset_t ring, before;
	pthread_t thread;
	sigemptyset(&ring);
	sigaddset(&ring, SIGALRM);
	/* The signal is for the first thread. */
	pthread_sigmask(SIG_BLOCK, &ring, &before);
	if (pthread_create(&thread, NULL, ring_once_asleep, (void *)milliseconds))
		exit(98);
	pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Has this thread, and those that it makes, run on the first of its CPUs. Returns the CPUs that it had. */
static inline cpu_set_t on_one_cpu(void)
{
	cpu_set_t all, one;
	MUST(sched_getaffinity(0, sizeof all, &all));
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	MUST(sched_setaffinity(0, sizeof one, &one));
	return all;
}
