/* What processes that a descriptor names answer, and clone3. */
#include "say.h"
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static int pidfd_open_(pid_t pid, unsigned flags) { return syscall(SYS_pidfd_open, pid, flags); }
static int pidfd_send(int fd, int sig, siginfo_t *info, unsigned flags)
{
	return syscall(SYS_pidfd_send_signal, fd, sig, info, flags);
}
static int pidfd_getfd_(int fd, int target, unsigned flags)
{
	return syscall(SYS_pidfd_getfd, fd, target, flags);
}
static long clone3_(struct clone_args *args, size_t size) { return syscall(SYS_clone3, args, size); }

static void say_poll(const char *what, int fd)
{
	struct pollfd p = { fd, POLLIN | POLLOUT, 0 };
	int r = poll(&p, 1, 0);
	say("%s: poll %d, %#x", what, r, p.revents);
}

static void say_info(const char *what, int fd, pid_t pid)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	int f = MUST(open(path, O_RDONLY));
	MUST(read(f, text, sizeof text - 1));
	close(f);
	char *at = strstr(text, "Pid:");
	int n = 0, m = 0;
	if (at && sscanf(at, "Pid:\t%d\nNSpid:\t%d\n", &n, &m) == 2)
		say("%s: %s %s", what, n == pid ? "its number" : n == -1 ? "-1" : "another",
		    m == pid ? "its number" : m == -1 ? "-1" : "another");
	else
		say("%s: no number", what);
}

static pid_t sleeper(void)
{
	pid_t p = MUST(fork());
	if (p == 0)
		for (;;)
			pause();
	return p;
}

static void opens(void)
{
	TRY(pidfd_open_(0, 0));
	TRY(pidfd_open_(-1, 0));
	TRY(pidfd_open_(getpid(), 1));
	TRY(pidfd_open_(getpid(), O_CLOEXEC));
	TRY(pidfd_open_(4000000, 0));
	int fd = MUST(pidfd_open_(getpid(), O_NONBLOCK));
	TRY(fcntl(fd, F_GETFD));
	TRY(fcntl(fd, F_GETFL));
	struct stat st;
	TRY(fstat(fd, &st));
	say("mode %o", st.st_mode);
	char b[64] = "", path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	MUST(readlink(path, b, sizeof b - 1));
	say("%s", b);
	TRY(read(fd, b, 8));
	TRY(write(fd, b, 8));
	TRY(lseek(fd, 0, SEEK_SET));
	TRY(mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, 0));
	TRY(open(path, O_RDONLY));
	say_poll("itself", fd);
	say_info("itself", fd, getpid());
	close(fd);
}

static void signals(void)
{
	pid_t p = sleeper();
	int fd = MUST(pidfd_open_(p, 0));
	siginfo_t info = { .si_signo = SIGUSR1, .si_code = SI_QUEUE };
	TRY(pidfd_send(fd, 0, 0, 0));
	TRY(pidfd_send(fd, 65, 0, 0));
	TRY(pidfd_send(fd, -1, 0, 0));
	TRY(pidfd_send(fd, 0, 0, 1));
	TRY(pidfd_send(0, 0, 0, 0));
	TRY(pidfd_send(-1, 0, 0, 0));
	TRY(pidfd_send(fd, SIGUSR2, &info, 0));
	TRY(pidfd_send(fd, 0, (void *)8, 0));
	info.si_code = SI_USER;
	TRY(pidfd_send(fd, SIGUSR1, &info, 0));
	info.si_code = SI_TKILL;
	TRY(pidfd_send(fd, SIGUSR1, &info, 0));
	info.si_signo = 0;
	info.si_code = SI_QUEUE;
	TRY(pidfd_send(fd, 0, &info, 0));
	char path[64];
	snprintf(path, sizeof path, "/proc/%d", p);
	int dir = MUST(open(path, O_RDONLY | O_DIRECTORY));
	TRY(pidfd_send(dir, 0, 0, 0));
	int status_file = MUST(openat(dir, "status", O_RDONLY));
	TRY(pidfd_send(status_file, 0, 0, 0));
	int tasks = MUST(openat(dir, "task", O_RDONLY));
	TRY(pidfd_send(tasks, 0, 0, 0));
	int path_only = MUST(open(path, O_PATH));
	TRY(pidfd_send(path_only, 0, 0, 0));
	say_poll("alive", fd);
	say_info("alive", fd, p);
	TRY(pidfd_send(fd, SIGTERM, 0, 0));
	siginfo_t got = { 0 };
	struct rusage usage;
	TRY(waitid(P_PIDFD, fd, &got, WEXITED | WNOWAIT));
	say("signal %d, code %d, status %d, %s", got.si_signo, got.si_code, got.si_status,
	    got.si_pid == p ? "it" : "another");
	say_poll("zombie", fd);
	say_info("zombie", fd, p);
	TRY(pidfd_send(fd, SIGTERM, 0, 0));
	TRY(syscall(SYS_waitid, P_PIDFD, fd, &got, WEXITED, &usage));
	say_poll("gone", fd);
	say_info("gone", fd, p);
	TRY(pidfd_send(fd, SIGTERM, 0, 0));
	TRY(pidfd_send(fd, 77, 0, 0));
	TRY(pidfd_send(dir, SIGTERM, 0, 0));
	TRY(waitid(P_PIDFD, fd, &got, WEXITED));
	TRY(pidfd_getfd_(fd, 0, 0));
	close(fd); close(dir); close(status_file); close(tasks); close(path_only);
}

/* What stands where an answer goes, after an error. */
static void zeros(void)
{
	siginfo_t got;
	unsigned char *bytes = (void *)&got;
	memset(&got, 0x55, sizeof got);
	TRY(waitid(P_PIDFD, 999, &got, WEXITED));
	int other = 0;
	for (size_t i = 0; i < sizeof got; i++)
		other += bytes[i] != 0x55;
	say("%d bytes written, signal %d, code %d, pid %d, status %d", other, got.si_signo, got.si_code, got.si_pid,
	    got.si_status);
	memset(&got, 0x55, sizeof got);
	TRY(waitid(P_ALL, 0, &got, WEXITED));
	say("signal %d", got.si_signo);
	memset(&got, 0x55, sizeof got);
	TRY(waitid(P_ALL, 0, &got, 0));
	say("signal %d", got.si_signo);
	TRY(waitid(P_ALL, 0, (void *)8, WEXITED));
}

static void waits(void)
{
	siginfo_t got = { 0 };
	zeros();
	TRY(waitid(P_PIDFD, -1, &got, WEXITED));
	TRY(waitid(P_PIDFD, 0, &got, WEXITED));
	TRY(waitid(P_PIDFD, 999, &got, WEXITED));
	int self = MUST(pidfd_open_(getpid(), 0));
	TRY(waitid(P_PIDFD, self, &got, WEXITED));
	close(self);
	pid_t p = sleeper();
	int fd = MUST(pidfd_open_(p, O_NONBLOCK)), slow = MUST(pidfd_open_(p, 0));
	TRY(waitid(P_PIDFD, fd, &got, WEXITED));
	TRY(waitid(P_PIDFD, fd, &got, WEXITED | WNOHANG));
	TRY(waitid(P_PIDFD, slow, &got, WEXITED | WNOHANG));
	TRY(waitid(P_PIDFD, slow, &got, 0));
	MUST(kill(p, SIGSTOP));
	got.si_pid = 0;
	TRY(waitid(P_PIDFD, slow, &got, WSTOPPED));
	say("code %d, status %d", got.si_code, got.si_status);
	say_poll("stopped", slow);
	int set = MUST(epoll_create1(0));
	struct epoll_event e = { EPOLLIN | EPOLLET, { .u32 = 7 } };
	MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e));
	TRY(epoll_wait(set, &e, 1, 0));
	MUST(kill(p, SIGKILL));
	struct pollfd wait = { slow, POLLIN, 0 };
	TRY(poll(&wait, 1, 600000));
	TRY(epoll_wait(set, &e, 1, 600000));
	say("events %#x", e.events);
	TRY(epoll_wait(set, &e, 1, 0));
	TRY(waitid(P_PIDFD, fd, &got, WEXITED));
	TRY(epoll_wait(set, &e, 1, 0));
	close(set); close(fd); close(slow);
	/* A grandchild is not a child here. */
	int pipe_[2];
	MUST(pipe(pipe_));
	p = MUST(fork());
	if (p == 0) {
		pid_t q = fork();
		if (q == 0) { pause(); _exit(0); }
		write(pipe_[1], &q, sizeof q);
		int s;
		waitpid(q, &s, 0);
		_exit(WTERMSIG(s));
	}
	pid_t q;
	MUST(read(pipe_[0], &q, sizeof q));
	fd = MUST(pidfd_open_(q, 0));
	TRY(waitid(P_PIDFD, fd, &got, WEXITED));
	TRY(pidfd_send(fd, SIGKILL, 0, 0));
	wait = (struct pollfd){ fd, POLLIN, 0 };
	TRY(poll(&wait, 1, 600000));
	int status;
	MUST(waitpid(p, &status, 0));
	say_status("the child", status);
	close(fd); close(pipe_[0]); close(pipe_[1]);
	/* Children that no process waits for. */
	signal(SIGCHLD, SIG_IGN);
	p = sleeper();
	fd = MUST(pidfd_open_(p, 0));
	MUST(kill(p, SIGKILL));
	wait = (struct pollfd){ fd, POLLIN, 0 };
	TRY(poll(&wait, 1, 600000));
	TRY(waitid(P_PIDFD, fd, &got, WEXITED));
	/* It can be polled a moment before its number is gone. */
	for (int looks = 0; pidfd_send(fd, 0, 0, 0) == 0 && looks < 60000; looks++)
		usleep(1000);
	TRY(pidfd_send(fd, 0, 0, 0));
	signal(SIGCHLD, SIG_DFL);
	close(fd);
}

static void *thread(void *arg)
{
	*(pid_t *)arg = syscall(SYS_gettid);
	TRY(pidfd_open_(syscall(SYS_gettid), 0));
	return 0;
}

#include <pthread.h>

static void descriptors(void)
{
	int go[2], done[2];
	MUST(pipe(go));
	MUST(pipe(done));
	pid_t p = MUST(fork());
	if (p == 0) {
		char b;
		int f = open("/tmp/pidfd_file", O_RDWR | O_CREAT | O_TRUNC, 0600);
		write(f, "hello", 5);
		dup2(f, 77);
		int path = open("/tmp", O_PATH);
		dup2(path, 78);
		write(done[1], "x", 1);
		read(go[0], &b, 1);
		_exit(lseek(f, 0, SEEK_CUR));
	}
	char b[8] = "";
	MUST(read(done[0], b, 1));
	int fd = MUST(pidfd_open_(p, 0));
	TRY(pidfd_getfd_(fd, 77, 1));
	TRY(pidfd_getfd_(fd, 79, 0));
	TRY(pidfd_getfd_(fd, -1, 0));
	TRY(pidfd_getfd_(0, 77, 0));
	TRY(pidfd_getfd_(999, 77, 0));
	int got = MUST(pidfd_getfd_(fd, 77, 0));
	TRY(fcntl(got, F_GETFD));
	TRY(fcntl(got, F_GETFL));
	TRY(lseek(got, 2, SEEK_SET));
	memset(b, 0, sizeof b);
	TRY(pread(got, b, 5, 0));
	say("%s", b);
	int path = MUST(pidfd_getfd_(fd, 78, 0));
	TRY(read(path, b, 1));
	MUST(write(go[1], "x", 1));
	int status;
	MUST(waitpid(p, &status, 0));
	say_status("the owner", status);
	TRY(pidfd_getfd_(fd, 77, 0));
	close(fd); close(got); close(path);
	close(go[0]); close(go[1]); close(done[0]); close(done[1]);
	unlink("/tmp/pidfd_file");
	pthread_t t;
	pid_t tid;
	pthread_create(&t, 0, thread, &tid);
	pthread_join(t, 0);
}

static void clones(void)
{
	int fd = -1, status;
	pid_t p = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, &fd, 0, 0);
	if (p == 0)
		_exit(fcntl(fd, F_GETFD) == -1 ? 3 : 4);
	TRY(fcntl(fd, F_GETFD));
	TRY(fcntl(fd, F_GETFL));
	say_info("cloned", fd, p);
	siginfo_t got = { 0 };
	TRY(waitid(P_PIDFD, fd, &got, WEXITED));
	say("status %d", got.si_status);
	close(fd);
	TRY(syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, &fd, 0, 0));
	TRY(syscall(SYS_clone, CLONE_PIDFD | CLONE_DETACHED | SIGCHLD, 0, &fd, 0, 0));
	TRY(syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, 8, 0, 0));
	struct clone_args a = { .exit_signal = SIGCHLD };
	TRY(clone3_(&a, 0));
	TRY(clone3_(&a, 63));
	TRY(clone3_(&a, 5000));
	TRY(clone3_((void *)8, 64));
	char big[256] = { 0 };
	memcpy(big, &a, sizeof a);
	big[200] = 1;
	TRY(clone3_((void *)big, 256));
	big[200] = 0;
	p = clone3_((void *)big, 256);
	if (p == 0)
		_exit(9);
	MUST(waitpid(p, &status, 0));
	say_status("larger than known", status);
#define REFUSED(...) do { struct clone_args r = { __VA_ARGS__ }; errno = 0; \
	long n = clone3_(&r, sizeof r); if (n == 0) _exit(0); \
	say("%s: %s", #__VA_ARGS__, n == -1 ? strerrorname_np(errno) : "a child"); \
	if (n > 0) waitpid(n, 0, __WALL); } while (0)
	REFUSED(.flags = SIGCHLD);
	REFUSED(.flags = 1ull << 40);
	REFUSED(.flags = CLONE_DETACHED);
	REFUSED(.exit_signal = 65);
	REFUSED(.exit_signal = 256);
	REFUSED(.exit_signal = 1ull << 32);
	REFUSED(.flags = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, .exit_signal = SIGCHLD);
	REFUSED(.flags = CLONE_PARENT, .exit_signal = SIGCHLD);
	REFUSED(.flags = CLONE_SIGHAND);
	REFUSED(.flags = CLONE_SIGHAND | CLONE_VM | CLONE_CLEAR_SIGHAND);
	REFUSED(.stack = 4096);
	REFUSED(.stack_size = 4096);
	REFUSED(.stack = 1ull << 62, .stack_size = 4096);
	REFUSED(.stack = 4096, .stack_size = 1ull << 60);
	REFUSED(.set_tid = 8);
	REFUSED(.set_tid_size = 1);
	REFUSED(.set_tid_size = 33, .set_tid = 8);
	REFUSED(.set_tid_size = 1, .set_tid = 8);
	REFUSED(.flags = CLONE_INTO_CGROUP, .cgroup = 1ull << 31);
	REFUSED(.flags = CLONE_INTO_CGROUP, .cgroup = 999);
	REFUSED(.flags = CLONE_PIDFD, .pidfd = 8);
	REFUSED(.flags = CLONE_PIDFD | CLONE_PARENT_SETTID, .pidfd = 8, .parent_tid = 8);
	REFUSED(.flags = CLONE_SETTLS, .tls = 1ull << 63);
	REFUSED(.exit_signal = 0);
	TRY(clone3_(&(struct clone_args){ .flags = CLONE_INTO_CGROUP }, 80));
	/* With all that it can store. */
	pid_t parent = 0, child = 0;
	fd = -1;
	a = (struct clone_args){ .flags = CLONE_PIDFD | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID,
		.pidfd = (uintptr_t)&fd, .parent_tid = (uintptr_t)&parent,
		.child_tid = (uintptr_t)&child, .exit_signal = SIGCHLD };
	p = clone3_(&a, CLONE_ARGS_SIZE_VER0);
	if (p == 0)
		_exit(child == getpid() && parent == 0 ? 5 : 6);
	HOLDS(parent == p);
	HOLDS(child == 0);
	got.si_status = 0;
	TRY(waitid(P_PIDFD, fd, &got, WEXITED));
	say("status %d", got.si_status);
	close(fd);
	/* Handlers become the default, what is ignored stays so. */
	signal(SIGUSR1, (void (*)(int))thread);
	signal(SIGUSR2, SIG_IGN);
	a = (struct clone_args){ .flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD };
	p = clone3_(&a, sizeof a);
	if (p == 0) {
		struct sigaction one, two;
		sigaction(SIGUSR1, 0, &one);
		sigaction(SIGUSR2, 0, &two);
		_exit((one.sa_handler == SIG_DFL) + 2 * (two.sa_handler == SIG_IGN));
	}
	MUST(waitpid(p, &status, 0));
	say_status("without handlers", status);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGUSR2, SIG_DFL);
	/* Another signal at the end. */
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, 0);
	a = (struct clone_args){ .exit_signal = SIGUSR1 };
	p = clone3_(&a, sizeof a);
	if (p == 0)
		_exit(1);
	TRY(sigwaitinfo(&set, &got));
	HOLDS(got.si_pid == p);
	TRY(waitpid(p, &status, WNOHANG));
	HOLDS(waitpid(p, &status, __WCLONE) == p);
	sigprocmask(SIG_UNBLOCK, &set, 0);
	/* vfork: the parent sees what the child stored. */
	volatile int stored = 0;
	a = (struct clone_args){ .flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD };
	long r;
	/* No function may return in the child: the stack is the parent's. */
	asm volatile("syscall" : "=a"(r) : "a"(SYS_clone3), "D"(&a), "S"(sizeof a)
		     : "rcx", "r11", "memory");
	if (r == 0) {
		stored = 42;
		_exit(2);
	}
	p = r;
	say("stored %d", stored);
	MUST(waitpid(p, &status, 0));
	say_status("vfork", status);
}

int main(void)
{
	opens();
	signals();
	waits();
	descriptors();
	clones();
	return 0;
}
