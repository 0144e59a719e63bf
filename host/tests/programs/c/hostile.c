/* Calls every system call with arguments that no sane program passes. The kernel must live.
 *
 * hostile systematic [FIRST LAST]   each call, each argument in turn each hostile value
 * hostile random SEED CALLS         calls and arguments drawn at random
 * hostile sequences SEED CALLS      mostly valid calls that make, change and end things
 *
 * All of it happens in children. Shared progress lets the parent see a child that hangs. Values that
 * would legitimately end the guest or the parent are left out: signals to everybody, and reboot.
 */
#include "say.h"
#include <linux/futex.h>
#include <linux/ptrace.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>

enum { LAST_CALL = 470, ARGUMENTS = 6, BATCH = 200, STUCK_MS = 300000 };

struct progress {
	volatile long call, index, done, stage;
	volatile long nr, args[ARGUMENTS];
};

static struct progress *progress;
static pid_t parent;
static char *good, *readable, *forbidden, *straddling, *path;
static long values[64];
static int value_count;

static void prepare_memory(void)
{
	char *p = mmap((void *)0x300000000000, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	good = p;
	straddling = p + 4 * PAGE - 4;
	forbidden = p + 4 * PAGE;
	mprotect(forbidden, PAGE, PROT_NONE);
	readable = p + 6 * PAGE;
	mprotect(readable, PAGE, PROT_READ);
	path = p + 8 * PAGE;
	strcpy(path, "/tmp/hostile");
	long list[] = {
		0, 1, 2, 3, 7, 9, 11, 13, 17, 63, 64, 4095, 4096, 0x7fffffff, 0x80000000, 0xffffffff, -1, -100, -4096,
		0x7fffffffffffffff, (long)0x8000000000000000, 1l << 40, 1l << 47, (1l << 47) - 4096, (1l << 47) - 1,
		(long)0xffff800000000000, (long)0xffff888000000000, (long)0xffff888000001000, (long)0xffffea0000000000,
		(long)0xffffffff80000000, (long)0xffffffff80200000, (long)0xfffffffffffff000, 0x1234567890abcdef,
		(long)good, (long)good + 1, (long)straddling, (long)forbidden, (long)readable, (long)path, 0x1000,
	};
	value_count = sizeof list / sizeof *list;
	memcpy(values, list, sizeof list);
}

static void prepare_files(void)
{
	int null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	dup2(open("/tmp/hostile", O_RDWR | O_CREAT, 0600), 3);
	int p[2];
	if (pipe2(p, O_NONBLOCK) == 0) {
		dup2(p[0], 7);
		dup2(p[1], 8);
	}
	dup2(open("/tmp", O_RDONLY | O_DIRECTORY), 9);
	dup2(open("/proc/self/status", O_RDONLY), 10);
	dup2(eventfd(0, EFD_NONBLOCK), 11);
	dup2(open("/dev/zero", O_RDWR), 12);
	dup2(epoll_create1(0), 13);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p) == 0) {
		dup2(p[0], 14);
		dup2(p[1], 15);
	}
	dup2(memfd_create("hostile", 0), 17);
}

/* No process owns what calls by number or key have made. */
static void remove_ipc(void)
{
	struct semid_ds set;
	struct msqid_ds queue;
	struct shmid_ds segment;
	for (int place = 0; place < 32768; place++) {
		int id = semctl(place, 0, SEM_STAT, &set);
		if (id >= 0)
			semctl(id, 0, IPC_RMID);
		id = msgctl(place, MSG_STAT, &queue);
		if (id >= 0)
			msgctl(id, IPC_RMID, 0);
		id = shmctl(place, SHM_STAT, &segment);
		if (id >= 0)
			shmctl(id, IPC_RMID, 0);
	}
	for (int n = 0; n < 4; n++) {
		sprintf(good + 3000, "mq%d", n);
		syscall(SYS_mq_unlink, good + 3000);
	}
}

/* Signals to others than the child itself, and values that mean "everybody". */
static int would_end_others(long nr, const long *a)
{
	int pid = (int)a[0];
	switch (nr) {
	case SYS_kill: case SYS_tkill: case SYS_rt_sigqueueinfo:
		return pid >= -1 && pid <= 64 ? 1 : pid == (int)parent || pid == -(int)parent;
	case SYS_tgkill: case SYS_rt_tgsigqueueinfo:
		return (pid > 0 && pid <= 64) || (int)a[1] <= 64 || pid == (int)parent || (int)a[1] == (int)parent;
	/* Who is traced stands until its tracer is gone. */
	case SYS_ptrace:
		return (int)a[1] <= 64 || a[0] == 0 || a[0] == 16 || a[0] == 0x4206;
	case SYS_pidfd_open: case SYS_pidfd_send_signal: case SYS_process_vm_writev:
		return nr == SYS_process_vm_writev && pid <= 64;
	case SYS_prlimit64: case SYS_setpriority: case SYS_ioprio_set: case SYS_sched_setaffinity: case SYS_sched_setscheduler:
	case SYS_sched_setparam: case SYS_sched_setattr: case SYS_migrate_pages: case SYS_move_pages:
		return pid > 0 && pid <= 64;
	case SYS_reboot:
		return (unsigned)a[0] == 0xfee1dead;
	case SYS_exit: case SYS_exit_group:
		return 1;
	}
	return 0;
}

static long call(long nr, const long *a)
{
	progress->nr = nr;
	for (int i = 0; i < ARGUMENTS; i++)
		progress->args[i] = a[i];
	pid_t me = getpid();
	long r = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	/* a child that came out of a fork has done its work */
	if (syscall(SYS_getpid) != me || (r == 0 && (nr == SYS_fork || nr == SYS_vfork || nr == SYS_clone || nr == SYS_clone3)))
		syscall(SYS_exit_group, 0);
	return r;
}

static void wake(int sig) { (void)sig; }

/* A call that blocks is interrupted after 5 ms, again and again. */
static void arm(void)
{
	struct sigaction a = { .sa_handler = wake };
	struct itimerval it = { { 0, 5000 }, { 0, 5000 } };
	sigaction(SIGALRM, &a, NULL);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
}

static uint64_t seed;
static uint64_t next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static long draw(void)
{
	uint64_t r = next();
	switch (r & 7) {
	case 0: return (r >> 8) & 63;
	case 1: return (long)(next() >> (r >> 8 & 63));
	case 2: return 1l << (r >> 8 & 63);
	case 3: return (long)good + (r >> 8 & 0x7fff);
	default: return values[(r >> 8) % value_count];
	}
}

static const int requests[] = {
	1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 24, 25, 30, 31, 32, 33, 0x4200, 0x4201, 0x4202, 0x4203,
	0x4204, 0x4205, 0x4206, 0x4207, 0x4208, 0x4209, 0x420a, 0x420b, 0x420c, 0x420d, 0x420e, 0x420f, 0x4210, 0x4211, 0x4212,
};
enum { REQUESTS = sizeof requests / sizeof *requests };

/* A tracee of this child's own, which stands. */
static pid_t tracee;

static void prepare_tracee(void)
{
	long word;
	for (int tries = 0; tries < 100; tries++) {
		if (tracee <= 0) {
			tracee = fork();
			if (tracee == 0)
				for (;;)
					pause();
			syscall(SYS_ptrace, PTRACE_SEIZE, tracee, 0, PTRACE_O_EXITKILL);
		}
		if (syscall(SYS_ptrace, PTRACE_PEEKUSR, tracee, 0, &word) == 0)
			return;
		if (syscall(SYS_ptrace, PTRACE_INTERRUPT, tracee, 0, 0) == 0) {
			waitpid(tracee, 0, __WALL);
		} else {
			/* It is dead, or let go. */
			kill(tracee, SIGKILL);
			while (waitpid(tracee, 0, __WALL) == -1 && errno == EINTR)
				;
			tracee = 0;
		}
	}
}

static void end_tracee(void)
{
	if (tracee > 0)
		kill(tracee, SIGKILL);
}

static void request(long number, long address, long data)
{
	prepare_tracee();
	long a[ARGUMENTS] = { number, tracee, address, data, 0, 0 };
	if (tracee > 0)
		call(SYS_ptrace, a);
	if (number == PTRACE_SETOPTIONS)
		syscall(SYS_ptrace, PTRACE_SETOPTIONS, tracee, 0, PTRACE_O_EXITKILL);
}

static void systematic_child(long nr, long from)
{
	long base[3][ARGUMENTS] = {
		{ 3, (long)good, 64, (long)good, 0, 0 },
		{ (long)path, (long)good, 8, 0, (long)good, 8 },
		{ -100, (long)path, 1, 1, 1, 1 },
	};
	long index = 0;
	for (int b = 0; b < 3; b++)
		for (int i = 0; i < ARGUMENTS; i++)
			for (int v = 0; v < value_count; v++, index++) {
				if (index < from)
					continue;
				long a[ARGUMENTS];
				memcpy(a, base[b], sizeof a);
				a[i] = values[v];
				progress->index = index;
				if (!would_end_others(nr, a))
					call(nr, a);
				progress->done++;
			}
	for (int r = 0; nr == SYS_ptrace && r < REQUESTS; r++)
		for (int v = 0; v < 3 * value_count; v++, index++) {
			if (index < from)
				continue;
			progress->index = index;
			long value = values[v / 3], fixed = v % 3 == 1 ? 1 : (long)good;
			request(requests[r], v % 3 ? fixed : value, v % 3 ? value : fixed);
			progress->done++;
		}
	end_tracee();
	progress->index = index;
	progress->stage = 1;
}

static void random_child(int calls)
{
	for (int i = 0; i < calls; i++) {
		long a[ARGUMENTS], nr = next() % (LAST_CALL + 1);
		for (int k = 0; k < ARGUMENTS; k++)
			a[k] = draw();
		if (nr == SYS_ptrace && i % 2)
			request(requests[next() % REQUESTS], a[2], a[3]);
		else if (!would_end_others(nr, a))
			call(nr, a);
		progress->done++;
		progress->index++;
	}
	end_tracee();
	progress->stage = 1;
}

static sigjmp_buf after_fault;
static void faulted(int sig)
{
	(void)sig;
	siglongjmp(after_fault, 1);
}

/* Mostly valid: numbers of descriptors that exist, addresses of mappings that may exist. */
static void sequence_child(int calls)
{
	static const short nrs[] = {
		SYS_mmap, SYS_mmap, SYS_mmap, SYS_munmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_mremap, SYS_madvise, SYS_brk, SYS_msync,
		SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_lseek, SYS_ftruncate, SYS_fallocate, SYS_dup, SYS_dup2, SYS_close,
		SYS_open, SYS_pipe, SYS_fork, SYS_wait4, SYS_futex, SYS_poll, SYS_epoll_ctl, SYS_epoll_wait, SYS_eventfd2,
		SYS_timerfd_create, SYS_timerfd_settime, SYS_memfd_create, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_sigaltstack, SYS_kill,
		SYS_getdents64, SYS_mkdir, SYS_rmdir, SYS_rename, SYS_link, SYS_symlink, SYS_unlink, SYS_sendfile, SYS_sched_yield, SYS_nanosleep,
		SYS_setitimer, SYS_getrandom, SYS_mincore, SYS_fcntl, SYS_writev, SYS_readv, SYS_socketpair, SYS_sched_setaffinity, SYS_set_robust_list,
		SYS_semget, SYS_semop, SYS_semop, SYS_semtimedop, SYS_semctl, SYS_msgget, SYS_msgsnd, SYS_msgsnd, SYS_msgrcv, SYS_msgrcv, SYS_msgctl,
		SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend, SYS_mq_timedsend, SYS_mq_timedreceive,
		SYS_mq_timedreceive, SYS_mq_notify, SYS_mq_getsetattr,
	};
	char *arena = (char *)0x10000000000;
	/* beside the buffers, so that calls which fill them do not reach this program's own data */
	char (*names)[40] = (void *)(path + PAGE);
	for (int i = 0; i < 8; i++)
		sprintf(names[i], "/tmp/hostile-%d%s", i, i > 4 ? "/x" : "");
	signal(SIGUSR1, SIG_IGN);
	signal(SIGSEGV, faulted);
	signal(SIGBUS, faulted);
	for (int i = 0; i < calls; i++) {
		long nr = nrs[next() % (sizeof nrs / sizeof *nrs)];
		long a[ARGUMENTS];
		for (int k = 0; k < ARGUMENTS; k++) {
			uint64_t r = next();
			switch (r % 10) {
			case 0: a[k] = draw(); break;
			case 1: a[k] = (long)good + (r >> 8 & 0xfff); break;
			case 2: a[k] = (long)names[r >> 8 & 7]; break;
			case 3: a[k] = (r >> 8) % 40; break;
			case 4: a[k] = ((r >> 8) % 64 + 1) * PAGE; break;
			case 5: a[k] = r >> 8 & 0xff; break;
			default: a[k] = (long)arena + ((r >> 8) % 512) * PAGE; break;
			}
		}
		uint64_t r = next();
		long page = (long)arena + (r % 512) * PAGE, pages = (r >> 10 & 63) + 1;
		switch (nr) {
		case SYS_mmap:
			a[0] = page; a[1] = pages * PAGE; a[2] = r >> 20 & 7;
			a[3] = (r >> 24 & 1 ? MAP_SHARED : MAP_PRIVATE) | (r >> 25 & 1 ? MAP_ANONYMOUS : 0) | (r >> 26 & 3 ? MAP_FIXED : 0);
			a[4] = (r >> 30) % 20; a[5] = (r >> 36 & 15) * PAGE;
			break;
		case SYS_munmap: case SYS_mprotect: case SYS_madvise: case SYS_msync: case SYS_mincore:
			a[0] = page; a[1] = pages * PAGE;
			a[2] = nr == SYS_mincore ? (long)good : (long)(r >> 20 & (nr == SYS_madvise ? 31 : 7));
			break;
		case SYS_mremap:
			a[0] = page; a[1] = pages * PAGE; a[2] = ((r >> 20 & 63) + 1) * PAGE; a[3] = r >> 30 & 3; a[4] = (long)arena + (r >> 40 & 511) * PAGE;
			break;
		case SYS_brk: a[0] = (long)sbrk(0) + (long)(r & 0xffff) * 16; break;
		case SYS_read: case SYS_write: case SYS_pread64: case SYS_pwrite64:
			a[0] = (r >> 8) % 30; a[2] = r >> 16 & 0x1ffff; a[3] = r >> 36 & 0xfffff;
			break;
		case SYS_ftruncate: a[0] = (r & 1) ? 3 : 17; a[1] = r >> 8 & 0x1fffff; break;
		case SYS_fallocate: a[0] = 3; a[1] = r >> 50 & 3; a[2] = r >> 8 & 0x1fffff; a[3] = r >> 30 & 0xfffff; break;
		case SYS_kill: a[0] = syscall(SYS_getpid); a[1] = (r & 1) ? SIGUSR1 : 0; break;
		case SYS_setitimer: continue;
		case SYS_futex: a[0] = (r & 1) ? (long)good : page; a[1] = r >> 8 & 15; a[2] = 0; a[3] = 0; break;
		case SYS_poll: a[0] = (long)good; a[1] = r & 7; a[2] = 1; break;
		case SYS_nanosleep: a[0] = (long)(struct timespec[]){ { 0, r & 0xffff } }; a[1] = 0; break;
		case SYS_rt_sigprocmask: a[0] = SIG_UNBLOCK; break;
		case SYS_rt_sigaction: a[0] = 34 + r % 20; a[3] = 8; break;
		case SYS_semget: case SYS_msgget: case SYS_shmget:
			a[0] = r & 7; a[1] = nr == SYS_msgget ? IPC_CREAT : nr == SYS_semget ? r >> 8 & 15 : (long)(r >> 8 & 0xffff);
			a[2] = IPC_CREAT | 0600;
			break;
		case SYS_semop: case SYS_semtimedop: case SYS_semctl: case SYS_msgctl: case SYS_msgsnd: case SYS_msgrcv: case SYS_shmat: case SYS_shmctl:
			/* one of those that a place has had */
			a[0] = (r & 7) + (r >> 8 & 3) * 32768;
			if (nr == SYS_semop || nr == SYS_semtimedop) {
				struct sembuf *ops = (void *)(good + 2048);
				for (int k = 0; k < 4; k++)
					ops[k] = (struct sembuf){ r >> (20 + k) & 7, (int)(r >> (30 + k) & 7) - 3, r >> (40 + 2 * k) & 3 ? IPC_NOWAIT | SEM_UNDO : SEM_UNDO };
				a[1] = (long)ops; a[2] = (r >> 12 & 3) + 1; a[3] = 0;
			} else if (nr == SYS_semctl) {
				a[1] = r >> 12 & 7; a[2] = r >> 16 & 15 ? 11 + (r >> 20) % 10 : IPC_RMID;
			} else if (nr == SYS_msgctl || nr == SYS_shmctl) {
				a[1] = r >> 16 & 7; a[2] = (long)good + 1024;
			} else if (nr == SYS_msgsnd || nr == SYS_msgrcv) {
				*(long *)(good + 1024) = r >> 12 & 3;
				a[1] = (long)good + 1024; a[2] = r >> 16 & 0xfff; a[3] = nr == SYS_msgrcv ? (long)(r >> 30 & 7) - 3 : (long)(r >> 30 & IPC_NOWAIT);
				a[4] = r >> 34 & 07 ? IPC_NOWAIT | (r >> 36 & 070000) : 0;
			}
			break;
		case SYS_mq_open:
			sprintf(good + 3000, "mq%d", (int)(r & 3));
			a[0] = (long)good + 3000; a[1] = O_CREAT | O_RDWR | (r >> 8 & 3 ? O_NONBLOCK : 0); a[2] = 0600; a[3] = 0;
			break;
		case SYS_mq_unlink: a[0] = (long)good + 3000; break;
		case SYS_mq_timedsend: case SYS_mq_timedreceive: case SYS_mq_notify: case SYS_mq_getsetattr:
			a[0] = (r >> 8) % 30; a[1] = (long)good + 1024; a[2] = nr == SYS_mq_timedsend ? r >> 16 & 0xfff : 8192; a[4] = 0;
			if (nr == SYS_mq_getsetattr)
				a[2] = (long)good + 2048;
			break;
		}
		if (!would_end_others(nr, a))
			call(nr, a);
		progress->done++;
		progress->index++;
		/* touch what may be mapped */
		if ((r & 3) == 0 && sigsetjmp(after_fault, 1) == 0) {
			*(volatile char *)page += 1;
			*(volatile char *)(page + 100 * PAGE) = 1;
		}
	}
	progress->stage = 1;
}

/* Waits for a child that may hang; says which call it hangs in where even SIGKILL does not help. */
static int await(pid_t child)
{
	long last = -1;
	int quiet_ms = 0, killed = 0, status = 0;
	for (;;) {
		pid_t r = waitpid(child, &status, WNOHANG);
		if (r == child)
			break;
		if (r == -1 && errno == ECHILD)
			break;
		sleep_ms(quiet_ms < 20 ? 1 : 10);
		quiet_ms += quiet_ms < 20 ? 1 : 10;
		if (progress->done != last) {
			last = progress->done;
			quiet_ms = 0;
		}
		if (quiet_ms > 300 && !killed) {
			kill(child, SIGKILL);
			kill(-child, SIGKILL);
			killed = 1;
			quiet_ms = 0;
		}
		if (quiet_ms > STUCK_MS) {
			say("STUCK in call %ld (%lx %lx %lx %lx %lx %lx), SIGKILL does not end it", progress->nr, progress->args[0], progress->args[1],
				progress->args[2], progress->args[3], progress->args[4], progress->args[5]);
			exit(1);
		}
	}
	kill(-child, SIGKILL);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return killed;
}

static pid_t start(void)
{
	pid_t child = fork();
	/* leftovers of earlier children may still be on their way out */
	for (int tries = 0; child == -1 && tries < 1500; tries++) {
		sleep_ms(200);
		child = fork();
	}
	MUST(child);
	if (child == 0) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* the bomb that a child may build is a small one */
		long files[2] = { 64, 64 };
		syscall(SYS_prlimit64, 0, 7, files, NULL);
		long space[2] = { 256l << 20, 256l << 20 };
		syscall(SYS_prlimit64, 0, 9, space, NULL);
		prepare_files();
		arm();
	}
	return child;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "systematic";
	parent = getpid();
	signal(SIGPIPE, SIG_IGN);
	/* alone, so that no call that writes beyond a buffer reaches it */
	progress = mmap((void *)0x200000000000, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	prepare_memory();
	long hung = 0, died = 0;
	if (!strcmp(mode, "systematic")) {
		long first = argc > 3 ? atol(argv[2]) : 0, last = argc > 3 ? atol(argv[3]) : LAST_CALL;
		for (long nr = first; nr <= last; nr++) {
			long from = 0;
			int deaths = 0;
			progress->stage = 0;
			while (!progress->stage) {
				progress->index = from;
				pid_t child = start();
				if (child == 0) {
					systematic_child(nr, from);
					syscall(SYS_exit_group, 0);
				}
				hung += await(child);
				if (!progress->stage)
					died++;
				from = progress->index + 1;
				/* a call that ends every child has been seen often enough */
				if (++deaths > 60)
					break;
			}
			if (nr % 50 == 49)
				say("calls up to %ld", nr);
		}
	} else {
		seed = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;
		seed = seed * 0x9e3779b97f4a7c15 + 1;
		long calls = argc > 3 ? atol(argv[3]) : 10000;
		int sequences = !strcmp(mode, "sequences");
		for (long made = 0; made < calls; made += BATCH) {
			uint64_t batch_seed = next();
			progress->stage = progress->index = 0;
			pid_t child = start();
			if (child == 0) {
				seed = batch_seed;
				if (sequences)
					sequence_child(BATCH);
				else
					random_child(BATCH);
				syscall(SYS_exit_group, 0);
			}
			hung += await(child);
			died += !progress->stage;
		}
	}
	remove_ipc();
	say("%s: done", mode);
	fprintf(stderr, "%ld calls, %ld children died, %ld were ended\n", progress->done, died, hung);
	return 0;
}
