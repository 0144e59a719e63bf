/* Signals: the stack that their handlers run on, who may claim which origin of one, how
   many are queued, and timers that send them. */
#include "say.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <ucontext.h>

#define AUTODISARM (1u << 31)

static char near_stack[65536], far_stack[65536];
/* What the handler does to its thread's stack, and the flags for it. */
static enum { NOTHING, SET, WRITE_FRAME, DISABLE_FRAME, BAD_FRAME, SMALL_FRAME, DISABLE, NEST } deed;
static int new_flags;

static const char *name(const void *stack)
{
	return stack == near_stack ? "near" : stack == far_stack ? "far" : stack ? "another" : "none";
}

static void show(const char *when)
{
	stack_t now;
	MUST(sigaltstack(NULL, &now));
	say("%s: %s, flags %#x, size %zu", when, name(now.ss_sp), now.ss_flags, now.ss_size);
}

static void handler(int signal, siginfo_t *info, void *context)
{
	stack_t *frame = &((ucontext_t *)context)->uc_stack;
	stack_t other = { far_stack, new_flags, sizeof far_stack };
	(void)info;
	say("in the frame: %s, flags %#x, size %zu", name(frame->ss_sp), frame->ss_flags, frame->ss_size);
	show("in the handler");
	switch (deed) {
	case NOTHING:
		break;
	case SET:
		TRY(sigaltstack(&other, NULL));
		break;
	case WRITE_FRAME:
		*frame = other;
		break;
	case DISABLE_FRAME:
		frame->ss_flags = SS_DISABLE;
		break;
	case BAD_FRAME:
		frame->ss_flags = 77;
		break;
	case SMALL_FRAME:
		frame->ss_size = 100;
		break;
	case DISABLE:
		other.ss_flags = SS_DISABLE;
		TRY(sigaltstack(&other, NULL));
		break;
	case NEST:
		deed = NOTHING;
		raise(signal);
		break;
	}
}

static void handle(int flags)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER | flags };
	MUST(sigaction(SIGUSR1, &action, NULL));
}

/* The return from a handler sets the stack that the frame has. */
static void stacks_of_handlers(void)
{
	static const int flags[] = { 0, SS_ONSTACK, (int)AUTODISARM, SS_DISABLE, (int)(SS_DISABLE | AUTODISARM) };
	for (int on = 0; on < 2; on++) {
		handle(on ? SA_ONSTACK : 0);
		for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
			for (int todo = NOTHING; todo <= NEST; todo++) {
				stack_t first = { near_stack, flags[i], sizeof near_stack };
				MUST(sigaltstack(&first, NULL));
				new_flags = todo % 2 ? (int)AUTODISARM : 0;
				say("-- on the stack %d, flags %#x, deed %d", on, flags[i], todo);
				deed = todo;
				raise(SIGUSR1);
				show("afterwards");
			}
		}
	}
	/* The place is not looked at. */
	stack_t odd = { (void *)-4096L, 0, sizeof near_stack };
	TRY(sigaltstack(&odd, NULL));
	odd.ss_size = 100;
	TRY(sigaltstack(&odd, NULL));
}

/* Signal 0 checks alone. */
static void claim(const char *from, const char *to, pid_t process, pid_t thread)
{
	static const int codes[] = { SI_QUEUE, SI_USER, SI_TKILL, SI_KERNEL, SI_TIMER };
	for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++) {
		siginfo_t info = { .si_code = codes[i] };
		say("%s to %s, code %d", from, to, codes[i]);
		TRY(syscall(SYS_rt_sigqueueinfo, thread, 0, &info));
		TRY(syscall(SYS_rt_tgsigqueueinfo, process, thread, 0, &info));
	}
}

static pid_t other_thread;

static void *claims_of_a_thread(void *unused)
{
	(void)unused;
	other_thread = gettid();
	claim("thread", "itself", getpid(), gettid());
	claim("thread", "main thread", getpid(), getpid());
	return NULL;
}

static void *claims_for_a_thread(void *unused)
{
	(void)unused;
	claim("second thread", "first thread", getpid(), other_thread);
	return NULL;
}

static void *claim_and_wait(void *unused)
{
	pthread_t second;
	claims_of_a_thread(unused);
	pthread_create(&second, NULL, claims_for_a_thread, NULL);
	pthread_join(second, NULL);
	return NULL;
}

static void claims(void)
{
	pthread_t thread;
	claim("main thread", "itself", getpid(), getpid());
	pthread_create(&thread, NULL, claim_and_wait, NULL);
	pthread_join(thread, NULL);
}

/* Clocks that wake a sleeping machine. Without one for the real time the machine has none of them (EOPNOTSUPP). */
static void alarm_clocks(void)
{
	clockid_t clocks[] = { CLOCK_REALTIME_ALARM, CLOCK_BOOTTIME_ALARM };
	for (int i = 0; i < 2; i++) {
		struct timespec none = { 0, 0 };
		int timer;
		TRY(timerfd_create(clocks[i], -1));
		TRY(timerfd_create(clocks[i], 0));
		HOLDS(syscall(SYS_timer_create, clocks[i], NULL, &timer) == -1 && (errno == EPERM || errno == EOPNOTSUPP));
		HOLDS(syscall(SYS_clock_nanosleep, clocks[i], 0, &none, NULL) == -1 && (errno == EPERM || errno == EOPNOTSUPP));
	}
}

static int set_alarm(int timer, int flags)
{
	struct itimerspec none = { 0 };
	return timerfd_settime(timer, flags, &none, NULL);
}

/* Timers on those clocks that a user with the right has created. */
static void inherited_alarms(int real, int boot)
{
	struct itimerspec left;
	TRY(set_alarm(real, 0));
	TRY(set_alarm(real, TFD_TIMER_ABSTIME));
	TRY(set_alarm(real, -1));
	TRY(set_alarm(boot, 0));
	TRY(timerfd_gettime(real, &left));
	TRY(set_alarm(MUST(timerfd_create(CLOCK_REALTIME, 0)), 0));
	TRY(set_alarm(MUST(timerfd_create(CLOCK_BOOTTIME, 0)), 0));
}

static void queue(const char *when)
{
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	int queued = -1;
	while (fgets(line, sizeof line, status))
		sscanf(line, "SigQ: %d/", &queued);
	fclose(status);
	say("%s: %d queued", when, queued);
}

static void take(int signal)
{
	sigset_t set;
	siginfo_t info;
	struct timespec none = { 0, 0 };
	sigemptyset(&set);
	sigaddset(&set, signal);
	say("signal %d: %d", signal, sigtimedwait(&set, &info, &none));
	say("code %d, from this process %d", info.si_code, info.si_pid == getpid());
	queue("taken");
}

/* Waits until a timer has sent its signal, which is blocked. */
static void expire(int timer, int signal)
{
	struct itimerspec soon = { { 0, 0 }, { 0, 1 } };
	sigset_t set;
	MUST(syscall(SYS_timer_settime, timer, 0, &soon, NULL));
	do
		sigpending(&set);
	while (!sigismember(&set, signal));
}

/* Which signals count for their user, and what the limit refuses. */
static void queued_signals(void)
{
	sigset_t all;
	union sigval value = { 0 };
	int timers[2];
	struct rlimit limit = { 3, 3 };
	sigfillset(&all);
	MUST(sigprocmask(SIG_BLOCK, &all, NULL));
	queue("at the start");
	for (int i = 0; i < 2; i++) {
		raise(SIGUSR1);
		queue("raise");
	}
	TRY(kill(getpid(), SIGUSR2));
	TRY(sigqueue(getpid(), SIGRTMIN, value));
	TRY(sigqueue(getpid(), SIGRTMIN, value));
	TRY(kill(getpid(), SIGRTMIN));
	queue("several");
	MUST(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, timers));
	queue("with a timer");
	expire(timers[0], SIGALRM);
	queue("with its signal");
	MUST(setrlimit(RLIMIT_SIGPENDING, &limit));
	TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, timers + 1));
	TRY(sigqueue(getpid(), SIGRTMIN + 1, value));
	TRY(sigqueue(getpid(), SIGTERM, value));
	queue("beyond the limit");
	TRY(kill(getpid(), SIGHUP));
	queue("by kill");
	TRY(kill(getpid(), SIGRTMIN + 2));
	TRY(syscall(SYS_tkill, getpid(), SIGINT));
	TRY(syscall(SYS_tkill, getpid(), SIGRTMIN + 3));
	queue("without details");
	int taken[] = { SIGTERM, SIGHUP, SIGINT, SIGRTMIN + 2, SIGUSR1, SIGALRM };
	for (unsigned i = 0; i < sizeof taken / sizeof *taken; i++)
		take(taken[i]);
	IN_CHILD("child", queue("child"); kill(getpid(), SIGUSR1); queue("child"));
	queue("its end");
	expire(timers[0], SIGALRM);
	queue("pending again");
	MUST(syscall(SYS_timer_delete, timers[0]));
	queue("without the timer");
	take(SIGALRM);
	signal(SIGRTMIN, SIG_IGN);
	queue("one ignored");
}

/* Pending signals that a new program finds: those of timers go with the timers. */
static void pending_for_a_program(const char *name)
{
	sigset_t all;
	union sigval value = { 0 };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	int timers[2];
	sigfillset(&all);
	MUST(sigprocmask(SIG_BLOCK, &all, NULL));
	MUST(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, timers));
	MUST(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, timers + 1));
	expire(timers[0], SIGALRM);
	expire(timers[1], SIGRTMIN);
	MUST(sigqueue(getpid(), SIGRTMIN, value));
	MUST(raise(SIGUSR1));
	execl("/proc/self/exe", name, "pending", NULL);
}

static void take_all(void)
{
	sigset_t all;
	siginfo_t info;
	struct timespec none = { 0, 0 };
	sigfillset(&all);
	while (sigtimedwait(&all, &info, &none) > 0)
		say("pending: signal %d, code %d", info.si_signo, info.si_code);
}

int main(int count, char **arguments)
{
	if (count > 1 && strcmp(arguments[1], "pending") == 0) {
		take_all();
		return 0;
	}
	show("at the start");
	if (count > 1) {
		handle(0);
		raise(SIGUSR1);
		return 0;
	}
	claims();
	int real = MUST(timerfd_create(CLOCK_REALTIME_ALARM, 0)), boot = MUST(timerfd_create(CLOCK_BOOTTIME_ALARM, 0));
	TRY(set_alarm(real, 0));
	IN_CHILD("another user", MUST(setuid(1234)); alarm_clocks(); inherited_alarms(real, boot));
	close(real);
	close(boot);
	IN_CHILD("user", MUST(setuid(4711)); queued_signals());
	IN_CHILD("program with pending signals", pending_for_a_program(arguments[0]));
	stacks_of_handlers();
	/* A new program has no stack, but its flags. */
	stack_t last = { near_stack, (int)AUTODISARM, sizeof near_stack };
	MUST(sigaltstack(&last, NULL));
	execl("/proc/self/exe", arguments[0], "again", NULL);
	return 1;
}
