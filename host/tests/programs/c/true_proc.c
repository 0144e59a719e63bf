/* What programs assert on in /proc: numbers of links, modes, kinds of entries, readiness, counters, and paths seen from
   another root directory. */
#include "say.h"
#include "blocked.h"
#include <dirent.h>
#include <elf.h>
#include <poll.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/vfs.h>

static char text[1 << 16];

static char *load(const char *path)
{
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n < 0)
		say("%s: %s", path, strerrorname_np(errno));
	text[n < 0 ? 0 : n] = 0;
	close(fd);
	return text;
}

static void put(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);
	ssize_t n = fd < 0 ? -1 : write(fd, value, strlen(value));
	say("%s > %s: %zd %s", value, path, n, n < 0 ? strerrorname_np(errno) : "");
	close(fd);
}

static int gate[2];
static volatile int thread_number;

static void *rests(void *arg)
{
	char c;
	thread_number = syscall(SYS_gettid);
	read(gate[0], &c, 1);
	return 0;
}

/* Directories: two links and one for each directory in it. */
static long directories_in(const char *path)
{
	DIR *d = opendir(path);
	long n = 0;
	for (struct dirent *e; d && (e = readdir(d));)
		n += e->d_type == DT_DIR && strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	if (d)
		closedir(d);
	return n;
}

static void links(void)
{
	pthread_t thread[3];
	struct stat s;
	pipe(gate);
	for (int i = 0; i < 3; i++) {
		stat("/proc/self/task", &s);
		say("task has %ld links with %d threads", (long)s.st_nlink, i + 1);
		pthread_create(&thread[i], 0, rests, 0);
	}
	stat("/proc/self/task", &s);
	HOLDS((long)s.st_nlink == 2 + directories_in("/proc/self/task"));
	/* A thread has a directory in /proc, too, which shows all threads. */
	while (!thread_number)
		sleep_ms(1);
	char name[64];
	sprintf(name, "/proc/%d/task", thread_number);
	say("threads seen from one: %ld, links %d", directories_in(name), stat(name, &s) == 0 && s.st_nlink == 6);
	sprintf(name, "/proc/%d/children", thread_number);
	TRY(open(name, O_RDONLY));
	write(gate[1], "xxx", 3);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], 0);
	/* A thread that was joined may be on its way out still. */
	do
		stat("/proc/self/task", &s);
	while (s.st_nlink > 3);
	static const char *all[] = { "/proc/self", "/proc/thread-self", "/proc/self/ns", "/proc/self/fd", "/proc/self/fdinfo" };
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		stat(all[i], &s);
		say("%s: as many links as directories %d", all[i], (long)s.st_nlink == 2 + directories_in(all[i]));
	}
	/* Others may come and go meanwhile, so one of many turns must show it. */
	int shown = 0;
	for (int turn = 0; turn < 1000 && !shown; turn++) {
		stat("/proc", &s);
		long before = s.st_nlink;
		pid_t child = MUST(fork());
		if (child == 0) {
			pause();
			_exit(0);
		}
		stat("/proc", &s);
		long after = s.st_nlink;
		kill(child, SIGKILL);
		waitpid(child, 0, 0);
		stat("/proc", &s);
		shown = after == before + 1 && (long)s.st_nlink == before;
	}
	say("/proc has a link for each process: %d", shown);
}

static void modes(void)
{
	static const char *all[] = {
		"/proc", "/proc/self", "/proc/mounts", "/proc/net", "/proc/sys", "/proc/sys/vm", "/proc/sys/kernel/hostname",
		"/proc/sys/kernel/ostype", "/proc/self/fd", "/proc/self/fd/1", "/proc/self/fdinfo", "/proc/self/fdinfo/1",
		"/proc/self/task", "/proc/self/ns", "/proc/self/ns/mnt", "/proc/self/exe", "/proc/self/cwd", "/proc/self/root",
		"/proc/self/environ", "/proc/self/auxv", "/proc/self/mem", "/proc/self/maps", "/proc/self/io", "/proc/self/comm",
		"/proc/self/stat", "/proc/self/cmdline", "/proc/self/limits", "/proc/self/mountinfo", "/proc/self/mountstats",
		"/proc/self/oom_score", "/proc/self/oom_score_adj", "/proc/self/personality", "/proc/self/syscall",
		"/proc/self/wchan", "/proc/self/pagemap", "/proc/meminfo", "/proc/swaps", "/proc/cgroups",
		"/proc/sys/kernel/overflowuid", "/sys/fs/cgroup",
	};
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		struct stat s;
		if (lstat(all[i], &s))
			say("%s: %s", all[i], strerrorname_np(errno));
		else
			say("%s: kind %o owner %d:%d size %ld", all[i], s.st_mode & S_IFMT, s.st_uid, s.st_gid,
			    S_ISREG(s.st_mode) ? (long)s.st_size : 0);
	}
	static const char *exact[] = { "fd", "fdinfo", "task", "ns", "environ", "auxv", "mem", "maps", "io", "comm", "stat",
		"oom_score_adj", "personality", "syscall", "wchan", "pagemap", "mountinfo", "mountstats" };
	for (unsigned i = 0; i < sizeof exact / sizeof *exact; i++) {
		char name[100];
		struct stat s;
		sprintf(name, "/proc/self/%s", exact[i]);
		lstat(name, &s);
		say("%s: mode %o", exact[i], s.st_mode & 07777);
	}
}

/* Root may open files without write permission for writing, except knobs; the write fails. */
static void writes(void)
{
	static const char *all[] = { "/proc/cpuinfo", "/proc/self/stat", "/proc/self/maps", "/proc/self/limits",
		"/proc/self/mounts", "/proc/self/io", "/proc/self/fdinfo/1", "/proc/sys/kernel/ostype" };
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		put(all[i], "1");
	static const char *ends[] = { "/proc", "/proc/self", "/proc/self/fd", "/proc/self/task", "/proc/sys/vm", "/sys" };
	for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++) {
		int fd = MUST(open(ends[i], O_RDONLY | O_DIRECTORY));
		say("end of %s: %ld, %ld", ends[i], (long)lseek(fd, 0, SEEK_END), (long)lseek(fd, 5, SEEK_CUR));
		close(fd);
	}
	static const char *endless[] = { "maps", "smaps", "numa_maps", "smaps_rollup", "mem", "pagemap", "stat", "mounts" };
	for (unsigned i = 0; i < sizeof endless / sizeof *endless; i++) {
		char name[32];
		sprintf(name, "/proc/self/%s", endless[i]);
		int fd = MUST(open(name, O_RDONLY));
		say("%s", name);
		TRY(lseek(fd, 4096, SEEK_SET));
		TRY(lseek(fd, 0, SEEK_END));
		TRY(lseek(fd, 0, SEEK_DATA));
		TRY(lseek(fd, 0, SEEK_HOLE));
		close(fd);
	}
}

static void namespaces(void)
{
	static const char *all[] = { "mnt", "net", "pid", "user", "uts", "ipc", "pid_for_children", "time" };
	char here[100], there[100], name[100], parent[100];
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		struct stat s;
		memset(here, 0, sizeof here);
		memset(there, 0, sizeof there);
		sprintf(name, "/proc/self/ns/%s", all[i]);
		readlink(name, here, sizeof here - 1);
		sprintf(parent, "/proc/%d/ns/%s", getppid(), all[i]);
		readlink(parent, there, sizeof there - 1);
		unsigned long number = 0;
		char kind[40] = "";
		int n = sscanf(here, "%39[a-z]:[%lu]", kind, &number);
		stat(name, &s);
		say("%s: %d %s, same as the parent's %d, number of the file %d, mode %o", all[i], n, kind, !strcmp(here, there),
		    s.st_ino == number, s.st_mode);
		int fd = open(name, O_RDONLY);
		struct statfs f;
		say("opened %d, magic %d", fd >= 0, fstatfs(fd, &f) == 0 && f.f_type == 0x6e736673);
		TRY(read(fd, here, 1));
		close(fd);
	}
	TRY(open("/proc/self/ns/none", O_RDONLY));
}

static long field(const char *path, const char *name)
{
	char *at = strstr(load(path), name);
	return at ? atol(at + strlen(name)) : -1;
}

static void counters(void)
{
	int fd = MUST(open("counted", O_CREAT | O_RDWR | O_TRUNC, 0600));
	long r = field("/proc/self/io", "rchar: "), w = field("/proc/self/io", "wchar: ");
	long rc = field("/proc/self/io", "syscr: "), wc = field("/proc/self/io", "syscw: ");
	char buffer[1000] = "";
	for (int i = 0; i < 10; i++)
		write(fd, buffer, 1000);
	for (int i = 0; i < 10; i++)
		pread(fd, buffer, 500, 0);
	read(-1, buffer, 1);
	long more = field("/proc/self/io", "wchar: ") - w;
	say("wrote %ld in %ld calls", more, field("/proc/self/io", "syscw: ") - wc);
	/* Reading the file itself counts, too. */
	long got = field("/proc/self/io", "rchar: ") - r;
	HOLDS(got >= 5000 && got < 7000);
	long calls = field("/proc/self/io", "syscr: ") - rc;
	HOLDS(calls >= 11 && calls < 20);
	HOLDS(field("/proc/self/io", "cancelled_write_bytes: ") >= 0);
	long before = field("/proc/self/io", "wchar: ");
	IN_CHILD("a writer", { for (int i = 0; i < 5; i++) write(fd, buffer, 1000); });
	long after = field("/proc/self/io", "wchar: ");
	HOLDS(after - before >= 5000);
	close(fd);
	unlink("counted");
	struct stat s;
	char name[64];
	sprintf(name, "/proc/self/task/%d/io", getpid());
	HOLDS(field(name, "wchar: ") >= 10000);
	IN_CHILD("another user", {
		setresuid(65534, 65534, 65534);
		char own[64];
		sprintf(own, "/proc/%d/io", getppid());
		TRY(open(own, O_RDONLY));
	});
}

/* Files of a process that were opened while it could be inspected: read when it cannot be any more, and when it is gone. */
static void opened_before(void)
{
	static const char *all[] = { "io", "personality", "mounts", "mountstats" };
	enum { FILES = sizeof all / sizeof *all };
	char c, name[64];
	int fds[FILES], go[2], done[2];
	MUST(pipe(go));
	MUST(pipe(done));
	MUST(setresuid(65534, 65534, 65534));
	MUST(prctl(PR_SET_DUMPABLE, 1));
	pid_t child = MUST(fork());
	if (child == 0) {
		read(go[0], &c, 1);
		prctl(PR_SET_DUMPABLE, 0);
		write(done[1], "x", 1);
		read(go[0], &c, 1);
		_exit(0);
	}
	for (int i = 0; i < FILES; i++) {
		sprintf(name, "/proc/%d/%s", child, all[i]);
		fds[i] = MUST(open(name, O_RDONLY));
	}
	write(go[1], "x", 1);
	read(done[0], &c, 1);
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < FILES; i++) {
			lseek(fds[i], 0, SEEK_SET);
			ssize_t n = read(fds[i], text, sizeof text);
			say("%s of a process that %s: %s", all[i], turn ? "is gone" : "hides", n < 0 ? strerrorname_np(errno) : n ? "shown" : "empty");
		}
		write(go[1], "x", 1);
		waitpid(child, 0, 0);
	}
	/* The directory of a thread in `task` lacks the last three. */
	static const char *of_threads[] = { "limits", "mounts", "mountstats", "coredump_filter", "timerslack_ns" };
	for (unsigned i = 0; i < sizeof of_threads / sizeof *of_threads; i++) {
		sprintf(name, "/proc/self/task/%d/%s", getpid(), of_threads[i]);
		say("%s of a thread: %s", of_threads[i], access(name, F_OK) ? strerrorname_np(errno) : "there");
	}
}

static void children(void)
{
	char name[64], want[64];
	sprintf(name, "/proc/self/task/%d/children", getpid());
	say("no children: '%s'", load(name));
	pid_t a = MUST(fork());
	if (a == 0)
		pause();
	pid_t b = MUST(fork());
	if (b == 0)
		pause();
	sprintf(want, "%d %d ", a, b);
	HOLDS(!strcmp(load(name), want));
	kill(a, SIGKILL);
	kill(b, SIGKILL);
	waitpid(a, 0, 0);
	waitpid(b, 0, 0);
	say("no children: '%s'", load(name));
	TRY(open("/proc/self/children", O_RDONLY));

	/* More than are visited at a time. */
	static pid_t crowd[300];
	static char all[8 * 300 + 1];
	for (int i = 0, n = 0; i < 300; i++) {
		crowd[i] = MUST(fork());
		if (crowd[i] == 0)
			pause();
		n += sprintf(all + n, "%d ", crowd[i]);
	}
	HOLDS(!strcmp(load(name), all));
	for (int i = 0; i < 300; i++)
		kill(crowd[i], SIGKILL);
	while (wait(0) > 0)
		;
	say("no children: '%s'", load(name));
}

static void ready(const char *path, const char *why)
{
	static int polled = -1;
	if (polled < 0)
		polled = MUST(open(path, O_RDONLY));
	struct pollfd p = { polled, POLLIN | POLLPRI };
	int n = poll(&p, 1, 0);
	say("%s %s: %d, %x", path, why, n, p.revents & (POLLIN | POLLPRI | POLLERR));
	if (!why[0])
		close(polled), polled = -1;
}

static void polls(void)
{
	static const char *all[] = { "/proc/self/mounts", "/proc/self/mountinfo", "/proc/self/mountstats", "/proc/swaps",
		"/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/proc/sys/vm/swappiness", "/proc/meminfo",
		"/proc/self/stat", "/proc/self/maps", "/proc/self/io" };
	int e = MUST(epoll_create1(0));
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		int fd = open(all[i], O_RDONLY);
		struct epoll_event event = { EPOLLPRI };
		int r = epoll_ctl(e, EPOLL_CTL_ADD, fd, &event);
		say("epoll on %s: %d %s", all[i], r, r ? strerrorname_np(errno) : "");
		struct epoll_event got;
		if (!r)
			say("ready for PRI: %d", epoll_wait(e, &got, 1, 0));
		close(fd);
	}
	int fd = MUST(open("/proc/self/mounts", O_RDONLY));
	struct epoll_event event = { EPOLLPRI }, got;
	MUST(epoll_ctl(e, EPOLL_CTL_ADD, fd, &event));
	mkdir("place", 0755);
	ready("/proc/self/mountinfo", "at first");
	MUST(mount("none", "place", "tmpfs", 0, 0));
	ready("/proc/self/mountinfo", "after mount");
	ready("/proc/self/mountinfo", "again");
	TRY(epoll_wait(e, &got, 1, -1));
	MUST(umount("place"));
	ready("/proc/self/mountinfo", "after umount");
	ready("/proc/self/mountinfo", "");
	rmdir("place");
	close(fd);
	char name[65] = "";
	gethostname(name, 64);
	ready("/proc/sys/kernel/hostname", "at first");
	MUST(sethostname("other", 5));
	ready("/proc/sys/kernel/hostname", "after sethostname");
	ready("/proc/sys/kernel/hostname", "again");
	put("/proc/sys/kernel/hostname", "third");
	ready("/proc/sys/kernel/hostname", "after a write");
	ready("/proc/sys/kernel/hostname", "");
	sethostname(name, strlen(name));
	close(e);
}

static void next_numbers(void)
{
	say("next: %s", load("/proc/sys/kernel/msg_next_id"));
	put("/proc/sys/kernel/msg_next_id", "-2");
	put("/proc/sys/kernel/msg_next_id", "x");
	put("/proc/sys/kernel/msg_next_id", "98309");
	TRY(msgget(IPC_PRIVATE, 0600));
	say("next: %s", load("/proc/sys/kernel/msg_next_id"));
	put("/proc/sys/kernel/shm_next_id", "98310");
	TRY(shmget(IPC_PRIVATE, PAGE, 0600));
	put("/proc/sys/kernel/shm_next_id", "98310");
	HOLDS(shmget(IPC_PRIVATE, PAGE, 0600) != 98310);
	put("/proc/sys/kernel/sem_next_id", "98311");
	TRY(semget(IPC_PRIVATE, 1, 0600));
	say("next: %s", load("/proc/sys/kernel/sem_next_id"));
	msgctl(98309, IPC_RMID, 0);
	shmctl(98310, IPC_RMID, 0);
	semctl(98311, 0, IPC_RMID);
}

static void other_root(void)
{
	char path[300] = "", name[64];
	int proc = MUST(open("/proc", O_RDONLY | O_DIRECTORY));
	MUST(mkdir("newroot", 0755));
	MUST(mkdir("newroot/below", 0755));
	MUST(chroot("newroot"));
	MUST(chdir("/below"));
	int fd = MUST(open("/foo", O_RDWR | O_CREAT, 0644));
	ftruncate(fd, PAGE);
	mmap(0, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	sprintf(name, "self/fd/%d", fd);
	readlinkat(proc, name, path, sizeof path - 1);
	say("fd: %s", path);
	memset(path, 0, sizeof path);
	readlinkat(proc, "self/cwd", path, sizeof path - 1);
	say("cwd: %s", path);
	memset(path, 0, sizeof path);
	readlinkat(proc, "self/root", path, sizeof path - 1);
	say("root: %s", path);
	int maps = MUST(openat(proc, "self/maps", O_RDONLY));
	ssize_t n = read(maps, text, sizeof text - 1);
	text[n < 0 ? 0 : n] = 0;
	HOLDS(!strstr(text, "newroot"));
	HOLDS(!!strstr(text, " /foo\n"));
	int mounts = MUST(openat(proc, "self/mounts", O_RDONLY));
	say("mounts: %zd bytes", read(mounts, text, sizeof text - 1));
	MUST(mkdir("/m", 0755));
	MUST(mount("none", "/m", "tmpfs", 0, 0));
	lseek(mounts, 0, SEEK_SET);
	n = read(mounts, text, sizeof text - 1);
	text[n < 0 ? 0 : n] = 0;
	say("mounts: %.14s", text);
	MUST(umount("/m"));
}

static void short_buffers(void)
{
	int d = MUST(open("/proc/self", O_RDONLY | O_DIRECTORY));
	char *m = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(m + PAGE, PAGE, PROT_NONE);
	long first = syscall(SYS_getdents64, d, m + PAGE - 100, 4096);
	HOLDS(first > 0 && first <= 100);
	/* What did not fit comes next. */
	long all = 0;
	for (long r; (r = syscall(SYS_getdents64, d, text, sizeof text)) > 0;)
		for (long at = 0; at < r; at += *(unsigned short *)(text + at + 16))
			all++;
	for (long at = 0; at < first; at += *(unsigned short *)(m + PAGE - 100 + at + 16))
		all++;
	lseek(d, 0, SEEK_SET);
	long once = 0;
	for (long r; (r = syscall(SYS_getdents64, d, text, sizeof text)) > 0;)
		for (long at = 0; at < r; at += *(unsigned short *)(text + at + 16))
			once++;
	HOLDS(all == once);
	lseek(d, 0, SEEK_SET);
	TRY(syscall(SYS_getdents64, d, m + PAGE, 4096));
	TRY(syscall(SYS_getdents64, d, m + PAGE - 8, 4096));
	HOLDS(syscall(SYS_getdents, d, m + PAGE - 100, 4096) > 0);
	close(d);
}

static void say_names(const char *what)
{
	char name[17] = "", *from, *to;
	MUST(prctl(PR_GET_NAME, name));
	say("%s: [%s]", what, name);
	say("comm [%s]", load("/proc/self/comm"));
	from = strchr(load("/proc/self/stat"), '(');
	to = strrchr(text, ')');
	to[1] = 0;
	say("stat %s", from);
	load("/proc/self/status");
	*strchr(text, '\n') = 0;
	say("status %s", text);
}

/* Names of tasks that are written in odd ways, and shown in one line. */
static void odd_names(void)
{
	static const char *const names[] = { "plain", "with a newline\n", "  blanks  ", "a\\b\nc", "\x80\xff", "longer than any name may be", "\n", "a\0b" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		int fd = MUST(open("/proc/self/comm", O_WRONLY));
		size_t length = i + 1 == sizeof names / sizeof *names ? 3 : strlen(names[i]);
		TRY(write(fd, names[i], length));
		close(fd);
		say_names("written");
		MUST(prctl(PR_SET_NAME, names[i]));
		say_names("set");
	}
	prctl(PR_SET_NAME, "true_proc");
}

/* A field of /proc/PID/stat behind the name, counted from the first of the line. */
static long place(const char *path, int number)
{
	char *at = strrchr(load(path), ')') + 1;
	for (int i = 3; i < number; i++)
		at = strchr(at + 1, ' ');
	return strtol(at, 0, 10);
}

static char **arguments;

/* The bounds of code and data, from the program's own headers. */
static void bounds(void)
{
	const Elf64_Phdr *headers = (void *)getauxval(AT_PHDR);
	long base = 0, code[2] = { -1, 0 }, data[2] = { 0, 0 };
	for (unsigned i = 0; i < getauxval(AT_PHNUM); i++) {
		long start = headers[i].p_vaddr, end = start + headers[i].p_filesz;
		if (headers[i].p_type != PT_LOAD)
			continue;
		if (headers[i].p_offset == 0)
			base = (long)headers - sizeof(Elf64_Ehdr) - start;
		if (headers[i].p_flags & PF_X) {
			code[0] = code[0] < 0 || start < code[0] ? start : code[0];
			code[1] = end > code[1] ? end : code[1];
		}
		data[0] = start > data[0] ? start : data[0];
		data[1] = end > data[1] ? end : data[1];
	}
	HOLDS(place("/proc/self/stat", 26) == base + code[0]);
	HOLDS(place("/proc/self/stat", 27) == base + code[1]);
	HOLDS(place("/proc/self/stat", 45) == base + data[0]);
	HOLDS(place("/proc/self/stat", 46) == base + data[1]);
	/* Those of another user's program are hidden. */
	pid_t child = MUST(fork());
	if (child == 0) {
		pause();
		_exit(0);
	}
	until_in_call(child, child, SYS_pause);
	IN_CHILD("another user", {
		char path[64];
		snprintf(path, sizeof path, "/proc/%d/stat", child);
		MUST(setuid(1000));
		say("code %ld %ld, data %ld %ld", place(path, 26), place(path, 27), place(path, 45), place(path, 46));
	});
	MUST(kill(child, SIGKILL));
	MUST(waitpid(child, NULL, 0));
}

/* Where the stack and the heap start, the signal at the end, and the status of a process that has ended. */
static void starts_and_ends(void)
{
	char path[64];
	HOLDS(place("/proc/self/stat", 28) == (long)(arguments - 1));
	long heap = place("/proc/self/stat", 47);
	HOLDS(heap > (long)text && heap <= (long)sbrk(0));
	say("own signal at the end: %ld, status %ld", place("/proc/self/stat", 38), place("/proc/self/stat", 52));
	static const int flags[] = { 0, SIGUSR1, SIGCHLD, SIGCHLD };
	signal(SIGUSR1, SIG_IGN);
	for (int i = 0; i < 4; i++) {
		pid_t child = MUST(syscall(SYS_clone, flags[i], 0, 0, 0, 0));
		if (child == 0 && i == 3)
			raise(SIGKILL);
		if (child == 0)
			_exit(i);
		siginfo_t info;
		MUST(waitid(P_PID, child, &info, WEXITED | WNOWAIT | __WALL));
		snprintf(path, sizeof path, "/proc/%d/stat", child);
		say("made with %d: signal at the end %ld, status %ld", flags[i], place(path, 38), place(path, 52));
		MUST(waitpid(child, 0, __WALL));
	}
}

/* EXITING, POSTCOREDUMP, FORKNOEXEC, SIGNALED, KTHREAD and RANDOMIZE. */
static void say_flags(const char *who, const char *path)
{
	say("flags of %s: %#lx", who, place(path, 9) & 0x60044c);
}

static void *flags_of_a_thread(void *unused)
{
	(void)unused;
	say_flags("a thread", "/proc/thread-self/stat");
	return NULL;
}

/* What the flags tell of a program and its end. */
static void flags_of_tasks(void)
{
	char path[64];
	say_flags("the program", "/proc/self/stat");
	for (int i = 0; i < 2; i++) {
		pid_t child = MUST(fork());
		if (child == 0) {
			pthread_t thread;
			say_flags("a child", "/proc/self/stat");
			pthread_create(&thread, NULL, flags_of_a_thread, NULL);
			pthread_join(thread, NULL);
			if (i == 1)
				raise(SIGKILL);
			_exit(0);
		}
		siginfo_t info;
		MUST(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
		snprintf(path, sizeof path, "/proc/%d/stat", child);
		say_flags("one that has ended", path);
		MUST(waitpid(child, NULL, 0));
	}
	IN_CHILD("not at random",
		 MUST(personality(0x40000)); say_flags("a child", "/proc/self/stat"); execl("/proc/self/exe", "itself", "flags", NULL));
}

static long command_line(void)
{
	int fd = MUST(open("/proc/self/cmdline", O_RDONLY));
	long n = MUST(read(fd, text, sizeof text));
	close(fd);
	return n;
}

/* Arguments whose last byte is overwritten are a title, up to its first NUL, which may extend over the environment. */
static void titles(void)
{
	char *start = arguments[0];
	long length = place("/proc/self/stat", 49) - (long)start, room = place("/proc/self/stat", 51) - (long)start;
	HOLDS(command_line() == length && !memcmp(text, start, length));
	memset(start, 'x', length - 1);
	start[1] = 0;
	HOLDS(command_line() == length && !memcmp(text, start, length));
	start[length - 1] = 'x';
	say("a short title: %ld bytes", command_line());
	memset(start, 't', length + 5);
	start[length + 5] = 0;
	long wanted = length + 6 < room ? length + 6 : room;
	HOLDS(command_line() == wanted && !memcmp(text, start, wanted));
}

static void *of_a_thread(void *arg)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%ld/stat", syscall(SYS_gettid));
	say("a thread's signal at the end: %ld", place(path, 38));
	long before = place(path, 10);
	char *m = mmap(0, 50 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(m, 50 * PAGE, MADV_NOHUGEPAGE);
	for (int i = 0; i < 50; i++)
		m[i * PAGE] = 1;
	long own = place(path, 10) - before;
	HOLDS(own >= 50 && own < 100);
	MUST(syscall(SYS_setresuid, 1000, 1000, 1000));
	put("/proc/self/timerslack_ns", "18446744073709551616");
	put("/proc/self/timerslack_ns", "-1");
	put("/proc/self/timerslack_ns", "70000");
	return 0;
}

static void tellings(void)
{
	static const char *const adjustments[] = { "0x10", "010", "-0x10", "+5", "1 ", " 7", "-", "0x", "1001", "-1001", "99999999999" };
	for (size_t i = 0; i < sizeof adjustments / sizeof *adjustments; i++) {
		put("/proc/self/oom_score_adj", adjustments[i]);
		say("now %s", load("/proc/self/oom_score_adj"));
	}
	put("/proc/self/oom_score_adj", "0");
	char *line = strstr(load("/proc/self/limits"), "Max nice");
	*strchr(line, '\n') = 0;
	say("a row without a unit ends with %zu blanks", strspn(strrchr(line, '0') + 1, " "));
	load("/proc/self/smaps_rollup");
	for (char *at = strchr(text, '\n'); at && at[1]; at = strchr(at + 1, '\n'))
		say("rollup: %.*s", (int)strcspn(at + 1, ":"), at + 1);
	say("running: wchan %ld", place("/proc/self/stat", 35));
	int p[2];
	MUST(pipe(p));
	pid_t child = MUST(fork());
	if (child == 0) {
		char b;
		close(p[1]);
		_exit(read(p[0], &b, 1));
	}
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/stat", child);
	until_state(child, child, 'S');
	say("waiting: wchan %ld", place(path, 35));
	close(p[1]);
	MUST(waitpid(child, 0, 0));
	long forks = strtol(strstr(load("/proc/stat"), "processes ") + 10, 0, 10);
	for (int i = 0; i < 10; i++) {
		if (MUST(fork()) == 0)
			_exit(0);
		MUST(wait(0));
	}
	long more = strtol(strstr(load("/proc/stat"), "processes ") + 10, 0, 10) - forks;
	HOLDS(more >= 10 && more < 1000);
	IN_CHILD("a thread", pthread_t t; pthread_create(&t, 0, of_a_thread, 0); pthread_join(t, 0));
}

int main(int count, char **argv)
{
	arguments = argv;
	if (count > 1) {
		say_flags("a program", "/proc/self/stat");
		return 0;
	}
	odd_names();
	tellings();
	starts_and_ends();
	bounds();
	flags_of_tasks();
	IN_CHILD("titles", titles());
	links();
	modes();
	writes();
	namespaces();
	counters();
	IN_CHILD("a user", opened_before());
	children();
	polls();
	next_numbers();
	short_buffers();
	IN_CHILD("another root", other_root());
	unlink("newroot/foo");
	rmdir("newroot/m");
	rmdir("newroot/below");
	rmdir("newroot");
	return 0;
}
