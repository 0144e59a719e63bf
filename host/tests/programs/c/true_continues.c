/* Signals that the end of a process sends, to processes that stand still or have odd wishes, and locks whose owners end. */
#include "say.h"
#include "blocked.h"
#include <linux/futex.h>
#include <linux/sched.h>
#include <sys/prctl.h>

static pid_t clone_with(unsigned long flags, int exit_signal)
{
	struct clone_args a = { .flags = flags, .exit_signal = exit_signal };
	return MUST(syscall(SYS_clone3, &a, sizeof a));
}

static void say_wait(const char *what, pid_t pid, int options)
{
	int status = 0;
	errno = 0;
	pid_t got = waitpid(pid, &status, options);
	if (got < 0)
		say("%s: %s", what, strerrorname_np(errno));
	else if (got == 0)
		say("%s: nothing yet", what);
	else
		say_status(what, status);
}

/* A child whose end continues its parent, which stands still. It ends after the stop was told. */
static void child_continues_parent(void)
{
	int told[2];
	char byte;
	MUST(pipe(told));
	pid_t p = MUST(fork());
	if (p == 0) {
		if (clone_with(0, SIGCONT) == 0) {
			MUST(read(told[0], &byte, 1));
			_exit(3);
		}
		raise(SIGSTOP);
		int status;
		MUST(waitpid(-1, &status, __WALL));
		_exit(WEXITSTATUS(status) == 3 ? 4 : 97);
	}
	say_wait("the parent", p, WUNTRACED);
	MUST(write(told[1], "", 1));
	say_wait("the parent", p, 0);
	close(told[0]), close(told[1]);
}

/* A process that stands still and continues when its parent ends. */
static void parent_continues_child(void)
{
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
	pid_t p = MUST(fork());
	if (p == 0) {
		pid_t child = MUST(fork());
		if (child == 0) {
			MUST(prctl(PR_SET_PDEATHSIG, SIGCONT));
			raise(SIGSTOP);
			_exit(5);
		}
		say_wait("the child", child, WUNTRACED);
		_exit(6);
	}
	MUST(waitpid(p, 0, 0));
	say_wait("the orphan", -1, 0);
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 0));
}

/* Whose signal a death signal is, where the child has this user and the parent becomes that one. */
static void death_signal(uid_t child_user, uid_t user)
{
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
	pid_t p = MUST(fork());
	if (p == 0) {
		int ready[2];
		MUST(pipe(ready));
		pid_t child = MUST(fork());
		if (child == 0) {
			sigset_t block;
			siginfo_t death;
			sigemptyset(&block);
			sigaddset(&block, SIGUSR1);
			sigprocmask(SIG_BLOCK, &block, 0);
			pid_t parent = getppid();
			struct timespec soon = { 1, 0 };
			MUST(setresuid(child_user, child_user, child_user));
			MUST(prctl(PR_SET_PDEATHSIG, SIGUSR1));
			MUST(write(ready[1], "", 1));
			while (getppid() == parent)
				sched_yield();
			if (sigtimedwait(&block, &death, &soon) < 0)
				say("no death signal");
			else
				say("death signal: code %d, from the parent %d, user %d", death.si_code, death.si_pid == parent, death.si_uid);
			_exit(0);
		}
		char b;
		MUST(read(ready[0], &b, 1));
		MUST(setresuid(user, user, user));
		_exit(0);
	}
	MUST(waitpid(p, 0, 0));
	say_wait("the orphan", -1, 0);
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 0));
}

/* A wait for any child finds the oldest first. */
static void order(void)
{
	for (int i = 0; i < 5; i++) {
		pid_t z = MUST(fork());
		if (z == 0)
			_exit(20 + i);
		until_state(z, z, 'Z');
	}
	for (int i = 0; i < 5; i++)
		say_wait("in turn", -1, 0);
}

/* Zombies that get a new parent, which ignores its children. */
static void zombies_of_reaper(void)
{
	for (int ignores = 0; ignores < 2; ignores++) {
		pid_t reaper = MUST(fork());
		if (reaper == 0) {
			MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
			if (ignores)
				signal(SIGCHLD, SIG_IGN);
			pid_t p = MUST(fork());
			if (p == 0) {
				signal(SIGCHLD, SIG_DFL);
				for (int i = 0; i < 3; i++) {
					pid_t z = MUST(fork());
					if (z == 0)
						_exit(7);
					until_state(z, z, 'Z');
				}
				_exit(8);
			}
			for (int i = 0; i < 5; i++)
				say_wait("of the reaper", -1, 0);
			_exit(0);
		}
		say_wait("reaper", reaper, 0);
	}
}

/* An ignored and blocked SIGCHLD does not become pending; another signal does. */
static void ignored_and_blocked(void)
{
	for (int which = 0; which < 3; which++) {
		pid_t p = MUST(fork());
		if (p == 0) {
			int number = which == 2 ? SIGURG : SIGCHLD;
			struct sigaction act = { .sa_handler = which == 1 ? SIG_DFL : SIG_IGN, .sa_flags = which == 1 ? SA_NOCLDWAIT : 0 };
			sigset_t set;
			sigfillset(&set);
			sigprocmask(SIG_BLOCK, &set, 0);
			MUST(sigaction(number, &act, 0));
			if (clone_with(0, number) == 0)
				_exit(0);
			say_wait("child", -1, __WALL);
			MUST(sigpending(&set));
			say("case %d: pending %d", which, sigismember(&set, number));
			_exit(0);
		}
		say_wait("case", p, 0);
	}
}

/* What signal the end of a sibling made with CLONE_PARENT, and that of an executed program, sends. */
static void exit_signals(char *self)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1), sigaddset(&set, SIGUSR2), sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, 0);
	siginfo_t info;
	int first[2];
	MUST(pipe(first));
	pid_t p = clone_with(0, SIGUSR1);
	if (p == 0) {
		/* Its sibling has its own exit signal, and is gone before this one ends. */
		char byte;
		if (clone_with(CLONE_PARENT, 0) == 0)
			_exit(1);
		MUST(read(first[0], &byte, 1));
		_exit(2);
	}
	for (int i = 0; i < 2; i++) {
		int got = MUST(sigwaitinfo(&set, &info));
		say("signal %d", got == SIGUSR1 ? 1 : got == SIGUSR2 ? 2 : got == SIGCHLD ? 3 : 0);
		say_wait("either", -1, __WALL);
		MUST(write(first[1], "", 1));
	}
	p = clone_with(0, SIGUSR2);
	if (p == 0) {
		char *arguments[] = { self, "executed", 0 };
		execv(self, arguments);
		_exit(98);
	}
	int got = MUST(sigwaitinfo(&set, &info));
	say("signal after exec: %s", got == SIGCHLD ? "SIGCHLD" : "another");
	say_wait("executed", p, 0);
}

static unsigned lock_word;
static pid_t tids[3];

static void *owner(void *n)
{
	long i = (long)n;
	tids[i] = syscall(SYS_gettid);
	errno = 0;
	long r = syscall(SYS_futex, &lock_word, FUTEX_LOCK_PI, 0, 0);
	say("%ld locks: %ld %s, word names it %d, owner died %d", i, r, r ? strerrorname_np(errno) : "", (lock_word & FUTEX_TID_MASK) == (unsigned)tids[i],
	    !!(lock_word & FUTEX_OWNER_DIED));
	/* Ends without unlocking. */
	return 0;
}

/* A lock that is handed on, and whose owners end one after the other. */
static void dying_owners(void)
{
	pthread_t threads[3];
	say("lock: %ld", syscall(SYS_futex, &lock_word, FUTEX_LOCK_PI, 0, 0));
	for (long i = 0; i < 3; i++) {
		pthread_create(&threads[i], 0, owner, (void *)i);
		while (!*(volatile pid_t *)&tids[i])
			sched_yield();
		until_in_call(getpid(), tids[i], SYS_futex);
	}
	MUST(syscall(SYS_futex, &lock_word, FUTEX_UNLOCK_PI, 0, 0));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	say("all ended");
}

int main(int count, char **arguments)
{
	if (count > 1)
		return 9;
	char self[256] = "";
	MUST(readlink("/proc/self/exe", self, sizeof self - 1));
	child_continues_parent();
	parent_continues_child();
	death_signal(0, 0);
	death_signal(1234, 1234);
	death_signal(0, 1234);
	death_signal(1234, 0);
	death_signal(1234, 1235);
	order();
	zombies_of_reaper();
	ignored_and_blocked();
	IN_CHILD("exit signals", exit_signals(self));
	dying_owners();
	return 0;
}
