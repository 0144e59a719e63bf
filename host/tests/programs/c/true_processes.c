/* What threads and processes have of each other: files, ends, places in the tree, tracers. */
#include "say.h"
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <linux/securebits.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/user.h>

static int far_pipe[2], near_pipe[2];

/* A thread takes files of its own: what it closes stays open for the others, and the other way round. */
static void *own_files(void *unused)
{
	char byte;
	(void)unused;
	TRY(syscall(SYS_close_range, 55, 60, 2));
	TRY(fcntl(55, F_GETFD));
	MUST(write(far_pipe[1], "x", 1));
	MUST(read(near_pipe[0], &byte, 1));
	TRY(fcntl(56, F_GETFD));
	TRY(dup2(1, 57));
	MUST(write(far_pipe[1], "x", 1));
	return NULL;
}

static void files_of_a_thread(void)
{
	char byte;
	pthread_t thread;
	MUST(pipe(far_pipe));
	MUST(pipe(near_pipe));
	MUST(dup2(1, 55));
	pthread_create(&thread, NULL, own_files, NULL);
	MUST(read(far_pipe[0], &byte, 1));
	TRY(fcntl(55, F_GETFD));
	TRY(dup2(1, 56));
	MUST(write(near_pipe[1], "x", 1));
	MUST(read(far_pipe[0], &byte, 1));
	TRY(fcntl(57, F_GETFD));
	pthread_join(thread, NULL);
	close(55);
	close(56);
	/* the last thread that has an end closes it */
	close(far_pipe[1]);
	struct pollfd end = { far_pipe[0], POLLIN, 0 };
	TRY(poll(&end, 1, 600000));
	say("events %#x", end.revents);
	close(far_pipe[0]);
	close(near_pipe[0]);
	close(near_pipe[1]);
}

static void *own_place(void *unused)
{
	char place[64];
	(void)unused;
	TRY(unshare(CLONE_FS | CLONE_FILES | CLONE_SYSVSEM));
	TRY(chdir("/tmp"));
	umask(0);
	say("%s", getcwd(place, sizeof place));
	TRY(unshare(CLONE_VM));
	TRY(unshare(CLONE_SIGHAND));
	TRY(unshare(CLONE_THREAD));
	return NULL;
}

static void place_of_a_thread(void)
{
	char place[64];
	pthread_t thread;
	MUST(chdir("/"));
	umask(022);
	pthread_create(&thread, NULL, own_place, NULL);
	pthread_join(thread, NULL);
	say("%s, mask %o", getcwd(place, sizeof place), umask(022));
}

static char stack[65536] __attribute__((aligned(16)));
static volatile int told, ended;

static int look_around(void *unused)
{
	(void)unused;
	chdir("/tmp");
	close(58);
	told = 1;
	syscall(SYS_exit, 0);
	return 0;
}

/* Threads that share less than the libraries' do. */
static void bare_threads(void)
{
	char place[64];
	int all = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD;
	for (int shared = 0; shared < 4; shared++) {
		int flags = all | (shared & 1 ? CLONE_FS : 0) | (shared & 2 ? CLONE_FILES : 0);
		MUST(chdir("/"));
		MUST(dup2(1, 58));
		told = 0;
		ended = 1;
		MUST(clone(look_around, stack + sizeof stack, flags, NULL, NULL, NULL, &ended));
		while (ended)
			sched_yield();
		say("fs %d, files %d: told %d, %s, descriptor %s", shared & 1, shared >> 1, told,
		    getcwd(place, sizeof place), fcntl(58, F_GETFD) == 0 ? "open" : "closed");
	}
	close(58);
}

static int execute(void *unused)
{
	char *arguments[] = { "program", "told", NULL };
	(void)unused;
	execv("/proc/self/exe", arguments);
	return 1;
}

static int end_quickly(void *unused)
{
	(void)unused;
	told = 1;
	syscall(SYS_exit, 0);
	return 0;
}

/* Who waits for a thread as for the child of a vfork. */
static void vfork_threads(void)
{
	int flags = CLONE_FILES | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_VM | CLONE_VFORK, back = 0;
	for (int i = 0; i < 50; i++) {
		pid_t child = MUST(fork());
		if (child == 0) {
			clone(execute, stack + sizeof stack, flags, NULL);
			_exit(77);
		}
		int status;
		MUST(waitpid(child, &status, 0));
		back += status != 7 << 8;
	}
	say("%d came back from a thread that executed a program", back);
	int early = 0;
	for (int i = 0; i < 50; i++) {
		told = 0;
		MUST(clone(end_quickly, stack + sizeof stack, flags, NULL));
		early += !told;
	}
	say("%d came back before the thread's end", early);
}

static pid_t mourner;

static void *make_mourner(void *signal)
{
	char byte;
	mourner = MUST(fork());
	if (mourner == 0) {
		prctl(PR_SET_PDEATHSIG, (long)signal);
		MUST(write(far_pipe[1], "x", 1));
		for (;;)
			pause();
	}
	MUST(read(far_pipe[0], &byte, 1));
	return NULL;
}

static void *wait_for_byte(void *unused)
{
	char byte;
	(void)unused;
	MUST(read(near_pipe[0], &byte, 1));
	return NULL;
}

/* A thread's end is told to the children that it made, and later that of the thread that they passed to. */
static void end_of_maker(void)
{
	pthread_t thread, other;
	int status;
	MUST(pipe(far_pipe));
	MUST(pipe(near_pipe));
	pthread_create(&other, NULL, wait_for_byte, NULL);
	pthread_create(&thread, NULL, make_mourner, (void *)SIGKILL);
	pthread_join(thread, NULL);
	MUST(waitpid(mourner, &status, 0));
	say_status("one that asks for SIGKILL", status);
	pthread_create(&thread, NULL, make_mourner, (void *)0);
	pthread_join(thread, NULL);
	TRY(waitpid(mourner, &status, WNOHANG));
	kill(mourner, SIGKILL);
	MUST(waitpid(mourner, &status, 0));
	/* the end of a thread that did not make the child sends it no signal */
	make_mourner((void *)SIGTERM);
	MUST(write(near_pipe[1], "x", 1));
	pthread_join(other, NULL);
	TRY(waitpid(mourner, &status, WNOHANG));
	kill(mourner, SIGKILL);
	MUST(waitpid(mourner, &status, 0));
	say_status("one that asks for SIGTERM", status);
}

/* One that is stopped can be looked into as soon as a process traces it. */
static void trace_stopped(void)
{
	int refused = 0;
	for (int i = 0; i < 50; i++) {
		int status;
		pid_t child = MUST(fork());
		if (child == 0) {
			raise(SIGSTOP);
			_exit(0);
		}
		MUST(waitpid(child, &status, WUNTRACED));
		MUST(ptrace(i % 2 ? PTRACE_ATTACH : PTRACE_SEIZE, child, NULL, NULL));
		errno = 0;
		ptrace(PTRACE_PEEKUSER, child, offsetof(struct user, regs.rip), NULL);
		refused += errno != 0;
		refused += ptrace(PTRACE_DETACH, child, NULL, NULL) != 0;
		kill(child, SIGKILL);
		MUST(waitpid(child, &status, 0));
	}
	say("%d requests refused", refused);
}

/* A futex whose file ends before it. */
static void futexes(void)
{
	int fd = MUST(open("/tmp/futexes", O_RDWR | O_CREAT | O_TRUNC, 0600));
	unlink("/tmp/futexes");
	MUST(ftruncate(fd, 2 * PAGE));
	unsigned *word = MUST(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	TRY(syscall(SYS_futex, word + 1024, FUTEX_WAKE, 1, NULL, NULL, 0));
	MUST(ftruncate(fd, PAGE));
	TRY(syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0));
	TRY(syscall(SYS_futex, word + 1024, FUTEX_WAKE, 1, NULL, NULL, 0));
	TRY(syscall(SYS_futex, word + 1024, FUTEX_WAIT, 0, NULL, NULL, 0));
	TRY(syscall(SYS_futex, word, FUTEX_REQUEUE, 1, 1, word + 1024, 0));
	TRY(syscall(SYS_futex, word + 1024, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
	munmap(word, 2 * PAGE);
	close(fd);
}

static void secure_bits(void)
{
	TRY(prctl(PR_GET_SECUREBITS));
	TRY(prctl(PR_SET_SECUREBITS, 1 << 20));
	TRY(prctl(PR_SET_KEEPCAPS, 1));
	TRY(prctl(PR_GET_SECUREBITS));
	TRY(prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS_LOCKED));
	TRY(prctl(PR_SET_KEEPCAPS, 1));
	TRY(prctl(PR_SET_SECUREBITS, 0));
	TRY(prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE));
	TRY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 10, 0, 0));
	TRY(prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_SETUID_FIXUP));
	MUST(syscall(SYS_setresuid, 5, 5, 5));
	TRY(prctl(PR_GET_SECUREBITS));
	/* it is no root any more, and can still do what root can */
	TRY(syscall(SYS_setresuid, 6, 0, 7));
	TRY(prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS_LOCKED));
	MUST(syscall(SYS_setresuid, 5, 5, 5));
	TRY(prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS_LOCKED));
	TRY(prctl(PR_GET_SPECULATION_CTRL, 7, 0, 0, 0));
	TRY(prctl(PR_GET_SPECULATION_CTRL, 0, 1, 0, 0));
	TRY(prctl(PR_SET_SPECULATION_CTRL, 7, 0, 0, 0));
	TRY(prctl(PR_SET_SPECULATION_CTRL, 0, 0, 1, 0));
}

static void read_counter(void)
{
	__builtin_ia32_rdtsc();
}

/* A thread that may not read the time-stamp counter, and its child; the process after that may. */
static void counter(void)
{
	int may = 0;
	IN_CHILD("allowed", read_counter());
	IN_CHILD("forbidden", {
		TRY(prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
		IN_CHILD("its child", read_counter());
		for (int i = 0; i < 100; i++)
			sched_yield();
		TRY(prctl(PR_GET_TSC, &may));
		say("%d", may == PR_TSC_SIGSEGV);
		read_counter();
	});
	IN_CHILD("allowed again", {
		TRY(prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
		TRY(prctl(PR_SET_TSC, 7));
		TRY(prctl(PR_SET_TSC, PR_TSC_ENABLE));
		read_counter();
	});
	read_counter();
	TRY(prctl(PR_GET_TSC, &may));
	say("%d", may == PR_TSC_ENABLE);
}

static void compare_lists(void)
{
	int set = MUST(semget(IPC_PRIVATE, 1, 0600)), status;
	struct sembuf up = { 0, 1, SEM_UNDO };
	MUST(semop(set, &up, 1));
	for (int shared = 0; shared < 2; shared++) {
		pid_t child = MUST(syscall(SYS_clone, (shared ? CLONE_SYSVSEM : 0) | SIGCHLD, 0, 0, 0, 0));
		if (child == 0) {
			long same = syscall(SYS_kcmp, getpid(), getppid(), KCMP_SYSVSEM, 0, 0);
			say("sharing %d: %s", shared, same ? "another list" : "the same list");
			_exit(0);
		}
		MUST(waitpid(child, &status, 0));
	}
	MUST(semctl(set, 0, IPC_RMID));
}

static void sticky_times(void)
{
	struct timeval short_time = { 0, 10 };
	MUST(personality(STICKY_TIMEOUTS));
	TRY(select(0, NULL, NULL, NULL, &short_time));
	say("%ld left", (long)short_time.tv_usec);
	MUST(personality(0));
	TRY(select(0, NULL, NULL, NULL, &short_time));
	say("%ld left", (long)short_time.tv_usec);
}

static volatile int runs;

static void run(union sigval value)
{
	runs += value.sival_int;
}

/* Threads that the C library starts for a message, and timers of that kind. */
static void threads_for_events(void)
{
	struct mq_attr size = { .mq_maxmsg = 4, .mq_msgsize = 8 };
	struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = 3 };
	event.sigev_notify_function = run;
	mqd_t queue = MUST(mq_open("/for_threads", O_RDWR | O_CREAT, 0600, &size));
	char message[8], status[80] = "";
	TRY(mq_notify(queue, &event));
	MUST(lseek(queue, 0, SEEK_SET));
	MUST(read(queue, status, sizeof status - 1));
	HOLDS(strstr(status, "NOTIFY:2 ") != NULL);
	TRY(mq_notify(queue, &event));
	TRY(mq_send(queue, "hello", 5, 0));
	while (!runs)
		sleep_ms(1);
	say("%d", runs);
	TRY(mq_send(queue, "again", 5, 0));
	MUST(mq_receive(queue, message, 8, NULL));
	MUST(mq_receive(queue, message, 8, NULL));
	TRY(mq_notify(queue, &event));
	TRY(mq_notify(queue, NULL));
	TRY(mq_send(queue, "third", 5, 0));
	sleep_ms(50);
	say("%d", runs);
	struct sigevent silent = { .sigev_notify = SIGEV_NONE };
	int folder = MUST(open("/", O_RDONLY));
	TRY(mq_notify(folder, &silent));
	TRY(mq_notify(-1, &silent));
	TRY(mq_notify(queue, &silent));
	TRY(mq_notify(queue, &silent));
	TRY(mq_notify(queue, NULL));
	close(folder);
	mq_close(queue);
	mq_unlink("/for_threads");
	timer_t timer;
	struct sigevent raw = { .sigev_notify = SIGEV_THREAD, .sigev_signo = SIGUSR1 };
	int number;
	TRY(syscall(SYS_timer_create, CLOCK_REALTIME, &raw, &number));
	raw.sigev_signo = 0;
	TRY(syscall(SYS_timer_create, CLOCK_REALTIME, &raw, &number));
	raw.sigev_notify = 3;
	raw.sigev_signo = SIGUSR1;
	TRY(syscall(SYS_timer_create, CLOCK_REALTIME, &raw, &number));
}

enum { OBJECTS = 20000 };

/* More objects than a table of whole objects has room for in one piece. */
static void many_objects(void)
{
	static int sets[OBJECTS], queues[OBJECTS];
	int made = 0, found = 0;
	for (int i = 0; i < OBJECTS; i++) {
		sets[i] = semget(IPC_PRIVATE, 1, 0600);
		queues[i] = msgget(IPC_PRIVATE, 0600);
		made += sets[i] >= 0 && queues[i] >= 0;
	}
	for (int i = 0; i < OBJECTS; i++) {
		found += semctl(sets[i], 0, GETVAL) == 0;
		semctl(sets[i], 0, IPC_RMID);
		msgctl(queues[i], IPC_RMID, NULL);
	}
	say("%d of each made, %d found", made, found);
}

static void set_text(const char *path, const char *value)
{
	FILE *knob = fopen(path, "r+");
	if (!knob || fputs(value, knob) < 0 || fclose(knob))
		say("%s cannot be set", path);
}

/* There are no more sets of semaphores than the knob says. */
static void few_sets(void)
{
	char limits[64];
	struct seminfo now;
	int sets[4];
	MUST(semctl(0, 0, SEM_INFO, &now));
	sprintf(limits, "32000 1024000000 500 %d", now.semusz + 3);
	set_text("/proc/sys/kernel/sem", limits);
	for (int i = 0; i < 4; i++) {
		errno = 0;
		sets[i] = semget(IPC_PRIVATE, 10, 0600);
		say("set %d: %s", i, sets[i] >= 0 ? "made" : strerrorname_np(errno));
	}
	for (int i = 0; i < 4; i++)
		semctl(sets[i], 0, IPC_RMID);
	set_text("/proc/sys/kernel/sem", "32000 1024000000 500 32000");
}

static void set_number(const char *path, int value)
{
	FILE *knob = fopen(path, "r+");
	if (!knob || fprintf(knob, "%d", value) < 0 || fclose(knob))
		say("%s cannot be set", path);
}

/* How many queues users may make. */
static void queues_of_a_user(void)
{
	struct mq_attr size = { .mq_maxmsg = 1, .mq_msgsize = 1 };
	set_number("/proc/sys/fs/mqueue/queues_max", 0);
	IN_CHILD("a user", {
		MUST(syscall(SYS_setresuid, 4321, 4321, 4321));
		DO(mq_open("/one", O_RDWR | O_CREAT, 0600, &size));
	});
	set_number("/proc/sys/fs/mqueue/queues_max", 1);
	IN_CHILD("a user", {
		MUST(syscall(SYS_setresuid, 4321, 4321, 4321));
		DO(mq_open("/one", O_RDWR | O_CREAT, 0600, &size));
		DO(mq_open("/two", O_RDWR | O_CREAT, 0600, &size));
		mq_unlink("/one");
		DO(mq_open("/two", O_RDWR | O_CREAT, 0600, &size));
	});
	DO(mq_open("/one", O_RDWR | O_CREAT, 0600, &size));
	DO(mq_open("/two", O_RDWR | O_CREAT, 0600, &size));
	mq_unlink("/one");
	mq_unlink("/two");
	set_number("/proc/sys/fs/mqueue/queues_max", 256);
}

/* Which queues can be opened and made, by root and by a user. */
static void opening_queues(void)
{
	struct mq_attr large = { .mq_maxmsg = 20, .mq_msgsize = 16384 }, got;
	struct rlimit limit, none;
	char name[258] = "/";
	memset(name + 1, 'a', 255);
	DO(mq_open(name, O_RDWR | O_CREAT, 0600, NULL));
	TRY(mq_unlink(name));
	name[256] = 'a';
	DO(mq_open(name, O_RDWR | O_CREAT, 0600, NULL));
	DO(syscall(SYS_mq_open, "", O_RDWR | O_CREAT, 0600, NULL));
	DO(syscall(SYS_mq_open, "a/b", O_RDWR | O_CREAT, 0600, NULL));
	DO(mq_open("/absent", O_RDWR));
	mqd_t queue = MUST(mq_open("/large", O_RDWR | O_CREAT, 0600, &large));
	TRY(mq_getattr(queue, &got));
	say("%ld messages of %ld", got.mq_maxmsg, got.mq_msgsize);
	DO(mq_open("/large", O_RDWR | O_CREAT | O_EXCL, 0600, NULL));
	MUST(getrlimit(RLIMIT_NOFILE, &limit));
	none = (struct rlimit){ 0, limit.rlim_max };
	MUST(setrlimit(RLIMIT_NOFILE, &none));
	DO(mq_open("/large", O_RDWR));
	DO(mq_open("/more", O_RDWR | O_CREAT, 0600, NULL));
	MUST(setrlimit(RLIMIT_NOFILE, &limit));
	DO(mq_open("/more", O_RDWR));
	IN_CHILD("a user", {
		MUST(syscall(SYS_setresuid, 4321, 4321, 4321));
		DO(mq_open("/large", O_RDWR));
		DO(mq_open("/large", O_RDWR | O_CREAT | O_EXCL, 0600, NULL));
		DO(mq_open("/more", O_RDWR | O_CREAT, 0600, &large));
		TRY(mq_unlink("/large"));
	});
	mq_close(queue);
	TRY(mq_unlink("/large"));
}

/* What pipes of a user without rights may hold. */
static void pipes_of_a_user(void)
{
	int p[2], many[12][2];
	set_number("/proc/sys/fs/pipe-user-pages-soft", 128);
	pid_t child = MUST(fork());
	if (child == 0) {
		MUST(syscall(SYS_setresuid, 4321, 4321, 4321));
		for (int i = 0; i < 12; i++) {
			MUST(pipe(many[i]));
			say("pipe %d: %d", i, fcntl(many[i][0], F_GETPIPE_SZ));
		}
		TRY(fcntl(many[11][0], F_SETPIPE_SZ, 4 * PAGE));
		TRY(fcntl(many[0][0], F_SETPIPE_SZ, PAGE));
		TRY(fcntl(many[11][0], F_SETPIPE_SZ, 4 * PAGE));
		TRY(fcntl(many[11][0], F_SETPIPE_SZ, 4 << 20));
		TRY(fcntl(many[11][0], F_SETPIPE_SZ, 1u << 31));
		TRY(fcntl(many[11][0], F_SETPIPE_SZ, -1));
		_exit(0);
	}
	int status;
	MUST(waitpid(child, &status, 0));
	say_status("the user", status);
	MUST(pipe(p));
	TRY(fcntl(p[0], F_GETPIPE_SZ));
	TRY(fcntl(p[0], F_SETPIPE_SZ, 1 << 20));
	close(p[0]);
	close(p[1]);
	set_number("/proc/sys/fs/pipe-user-pages-soft", 16384);
	set_number("/proc/sys/fs/pipe-max-size", PAGE);
	IN_CHILD("of small pipes", {
		MUST(syscall(SYS_setresuid, 4321, 4321, 4321));
		MUST(pipe(p));
		TRY(fcntl(p[0], F_GETPIPE_SZ));
	});
	IN_CHILD("root", MUST(pipe(p)); TRY(fcntl(p[0], F_GETPIPE_SZ)));
	set_number("/proc/sys/fs/pipe-max-size", 1 << 20);
	IN_CHILD("another", {
		MUST(syscall(SYS_setresuid, 4321, 4321, 4321));
		MUST(pipe(p));
		TRY(fcntl(p[0], F_GETPIPE_SZ));
	});
}

/* A signal to a group reaches each of its processes, also those that a fork is making. */
static void forks_in_a_group(void)
{
	int status, ended = 0;
	char byte;
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
	/* A process that the signal has missed would keep this one waiting. */
	alarm(300);
	for (int round = 0; round < 40; round++) {
		int made[2];
		MUST(pipe(made));
		pid_t maker = MUST(fork());
		if (maker == 0) {
			setpgid(0, 0);
			for (int i = 0; i < 20; i++) {
				if (write(made[1], "", 1) != 1 || fork() == 0)
					break;
			}
			for (;;)
				pause();
		}
		for (int i = 0; i <= round % 16; i++)
			MUST(read(made[0], &byte, 1));
		MUST(kill(-maker, SIGTERM));
		while (waitpid(-maker, &status, 0) > 0) {
			if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM)
				say_status("one of a group", status);
		}
		ended += kill(-maker, 0) == -1 && errno == ESRCH;
		close(made[0]);
		close(made[1]);
	}
	alarm(0);
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 0));
	say("%d groups ended", ended);
}

/* What a parent may do with the group of a child, which has ended so that it stays as it is. */
static void groups_of_children(void)
{
	for (int how = 0; how < 4; how++) {
		siginfo_t info;
		pid_t child = MUST(fork());
		if (child == 0) {
			if (how & 1)
				setsid();
			if (how & 2)
				execl("/proc/self/exe", "itself", "again", NULL);
			_exit(7);
		}
		MUST(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
		say("own session %d, own program %d", how & 1, how >> 1);
		TRY(setpgid(child, -1));
		TRY(setpgid(child, 999999));
		TRY(setpgid(child, 0));
		TRY(setpgid(child, getpgrp()));
		MUST(waitpid(child, NULL, 0));
		TRY(setpgid(child, 0));
	}
	TRY(setpgid(getppid(), 999999));
}

static void single_errors(void)
{
	TRY(reboot(0x12345));
	TRY(syscall(SYS_reboot, 1, 2, 0));
	TRY(reboot(RB_DISABLE_CAD));
	TRY(reboot(RB_ENABLE_CAD));
	int random = MUST(open("/dev/urandom", O_RDONLY)), bits = 0;
	TRY(ioctl(random, 0x80045200, &bits));
	say("%d bits", bits);
	TRY(ioctl(random, 0x80045200, HOLE));
	close(random);
}

/* After the last number, those of new processes begin again at 300. */
static void numbers_again(void)
{
	char before[16] = "";
	int f = MUST(open("/proc/sys/kernel/pid_max", O_RDWR));
	MUST(read(f, before, sizeof before - 1));
	MUST(pwrite(f, "400", 3, 0));
	pid_t last = 0, child = 0;
	for (int i = 0; i < 500; i++) {
		child = MUST(fork());
		if (child == 0)
			_exit(0);
		MUST(waitpid(child, 0, 0));
		if (child < last)
			break;
		last = child;
	}
	MUST(pwrite(f, before, strlen(before), 0));
	HOLDS(300 <= child && child < last && last < 400);
}

int main(int count, char **arguments)
{
	(void)count;
	if (arguments[1])
		return 7;
	files_of_a_thread();
	place_of_a_thread();
	bare_threads();
	vfork_threads();
	end_of_maker();
	trace_stopped();
	futexes();
	IN_CHILD("bits", secure_bits());
	counter();
	compare_lists();
	sticky_times();
	threads_for_events();
	many_objects();
	few_sets();
	queues_of_a_user();
	opening_queues();
	pipes_of_a_user();
	forks_in_a_group();
	groups_of_children();
	single_errors();
	numbers_again();
	return 0;
}
