/* Files under /proc and /sys: their lines and fields, in Linux's formats. */
#include "say.h"
#include "blocked.h"
#include <ctype.h>
#include <dirent.h>

static char text[1 << 20];

static char *load(const char *path)
{
	int fd = open(path, O_RDONLY);
	if (fd < 0) {
		say("%s: %s", path, strerrorname_np(errno));
		text[0] = 0;
		return text;
	}
	size_t n = 0;
	ssize_t r;
	while (n < sizeof text - 1 && (r = read(fd, text + n, sizeof text - 1 - n)) > 0)
		n += r;
	if (r < 0)
		say("%s: read: %s", path, strerrorname_np(errno));
	text[n] = 0;
	close(fd);
	return text;
}

/* Whether a line of the file starts with each of these names. */
static void has(const char *path, const char *names)
{
	load(path);
	char copy[2000];
	snprintf(copy, sizeof copy, "%s", names);
	for (char *name = strtok(copy, " "); name; name = strtok(NULL, " ")) {
		char *line = text;
		size_t n = strlen(name);
		while (line && !(strncmp(line, name, n) == 0 && !isalnum(line[n]) && line[n] != '_'))
			line = (line = strchr(line, '\n')) ? line + 1 : NULL;
		if (!line)
			say("%s has NO %s", path, name);
	}
	say("%s looked at", path);
}

static long number(const char *path, const char *name)
{
	load(path);
	char *at = text;
	size_t n = strlen(name);
	while (at && strncmp(at, name, n))
		at = (at = strchr(at, '\n')) ? at + 1 : NULL;
	return at ? strtol(at + n, NULL, 10) : -1;
}

static int fields(const char *s)
{
	int n = 0;
	while (*s) {
		while (*s == ' ' || *s == '\n')
			s++;
		if (*s)
			n++;
		while (*s && *s != ' ' && *s != '\n')
			s++;
	}
	return n;
}

static void *sleep_for_ever(void *unused)
{
	(void)unused;
	for (;;)
		pause();
}

/* Prints what /proc says of the leader of a process, which has ended. */
static void show_ended(pid_t pid)
{
	char path[64];
	int threads = 0, leader = 0;
	sprintf(path, "/proc/%d/task", pid);
	DIR *d = opendir(path);
	for (struct dirent *e; (e = readdir(d));)
		threads += atoi(e->d_name) != 0, leader += atoi(e->d_name) == pid;
	closedir(d);
	/* A zombie is on its CPU for the last few steps of its end. */
	sprintf(path, "/proc/%d/task/%d/syscall", pid, pid);
	double end = now() + 60;
	do
		load(path);
	while (!strcmp(text, "running\n") && now() < end);
	say("threads %d leader %d call %s", threads, leader, strtok(text, "\n"));
	sprintf(path, "/proc/%d/task/%d/stat", pid, pid);
	load(path);
	say("state %c", strchr(text, ')')[2]);
	sprintf(path, "/proc/%d/stat", pid);
	load(path);
	say("state %c", strchr(text, ')')[2]);
}

int main(int argc, char **argv)
{
	(void)argc;
	char path[400], b[4096];
	has("/proc/meminfo", "MemTotal: MemFree: MemAvailable: Buffers: Cached: SwapCached: Active: Inactive: Active(anon): Inactive(anon): "
		"SwapTotal: SwapFree: Dirty: AnonPages: Mapped: Shmem: Slab: SReclaimable: SUnreclaim: KernelStack: PageTables: "
		"CommitLimit: Committed_AS: VmallocTotal: HugePages_Total: HugePages_Free: Hugepagesize:");
	long total = number("/proc/meminfo", "MemTotal:"), before = number("/proc/meminfo", "MemFree:");
	HOLDS(total > 60000 && before > 0 && before <= total);
	HOLDS(number("/proc/meminfo", "MemAvailable:") <= total);
	/* the counters follow what a program does */
	char *p = mmap(NULL, 48 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(p, 1, 48 << 20);
	long anon = number("/proc/meminfo", "AnonPages:");
	HOLDS(anon >= 48 << 10);
	long rss = number("/proc/self/status", "VmRSS:");
	HOLDS(rss >= 48 << 10 && rss < 64 << 10);
	munmap(p, 48 << 20);
	HOLDS(number("/proc/self/status", "VmRSS:") < rss - (40 << 10));
	HOLDS(number("/proc/self/status", "VmHWM:") >= 48 << 10);

	has("/proc/vmstat", "nr_free_pages nr_anon_pages nr_mapped nr_file_pages nr_shmem nr_page_table_pages nr_kernel_stack pgfault pgmajfault pgfree oom_kill "
		"balloon_inflate balloon_deflate thp_fault_alloc compact_stall");
	long faults = number("/proc/vmstat", "pgfault ");
	p = mmap(NULL, 100 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(p, 100 * PAGE, MADV_NOHUGEPAGE);
	for (int i = 0; i < 100; i++)
		p[i * PAGE] = 1;
	HOLDS(number("/proc/vmstat", "pgfault ") >= faults + 100);

	/* Node 0, zone  NAME  and a count for each order from 0 to 10 */
	load("/proc/buddyinfo");
	int good = text[0] != 0;
	char *save;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		int node, at;
		char zone[20];
		good &= sscanf(line, "Node %d, zone %19s%n", &node, zone, &at) == 2 && fields(line + at) == 11;
	}
	HOLDS(good);
	load("/proc/pagetypeinfo");
	HOLDS(strstr(text, "Page block order: 9\n") && strstr(text, "Pages per block:  512\n") && strstr(text, "Free pages count per migrate type at order"));
	HOLDS(strstr(text, "Unmovable") && strstr(text, "Movable") && strstr(text, "Reclaimable") && strstr(text, "Number of blocks type"));
	load("/proc/zoneinfo");
	HOLDS(strstr(text, "Node 0, zone") && strstr(text, "pages free") && strstr(text, " min ") && strstr(text, " low ") && strstr(text, " high ") && strstr(text, "managed"));

	/* of this process */
	load("/proc/self/stat");
	int pid, ppid;
	char state, name[40];
	HOLDS(sscanf(text, "%d (%39[^)]) %c %d", &pid, name, &state, &ppid) == 4);
	HOLDS(pid == getpid() && ppid == getppid() && state == 'R' && !strcmp(name, "proc"));
	HOLDS(fields(strchr(text, ')')) >= 50);
	load("/proc/self/statm");
	HOLDS(fields(text) == 7 && atol(text) > 100);
	has("/proc/self/status", "Name: Umask: State: Tgid: Pid: PPid: TracerPid: Uid: Gid: VmPeak: VmSize: VmHWM: VmRSS: RssAnon: RssFile: RssShmem: VmData: VmStk: VmExe: "
		"VmPTE: Threads: SigQ: SigPnd: ShdPnd: SigBlk: SigIgn: SigCgt: Cpus_allowed: Cpus_allowed_list: voluntary_ctxt_switches: nonvoluntary_ctxt_switches:");
	HOLDS(number("/proc/self/status", "Threads:") == 1 && number("/proc/self/status", "Pid:") == getpid());
	int fd = MUST(open("/proc/self/cmdline", O_RDONLY));
	ssize_t n = MUST(read(fd, b, sizeof b));
	HOLDS(n == (ssize_t)strlen(argv[0]) + 1 && !strcmp(b, argv[0]));
	load("/proc/self/comm");
	say("comm %s", strtok(text, "\n"));
	load("/proc/self/maps");
	good = text[0] != 0;
	int stack = 0, heap = 0, ours = 0;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		unsigned long start, end, offset, inode;
		char rights[8], device[12];
		int at = 0;
		good &= sscanf(line, "%lx-%lx %7s %lx %11s %lu%n", &start, &end, rights, &offset, device, &inode, &at) == 6 && start < end && strlen(rights) == 4;
		stack += strstr(line, "[stack]") != NULL && start < (unsigned long)&fd && end > (unsigned long)&fd;
		heap += strstr(line, "[heap]") != NULL;
		ours += start <= (unsigned long)main && end > (unsigned long)main && rights[2] == 'x' && strstr(line, "/proc") != NULL;
	}
	HOLDS(good);
	say("stack %d heap %d program %d", stack, heap, ours);
	has("/proc/self/smaps_rollup", "Rss: Pss: Shared_Clean: Private_Dirty: Anonymous:");
	n = readlink("/proc/self/exe", b, sizeof b);
	HOLDS(n > 4 && !memcmp(b + n - 5, "/proc", 5));
	n = readlink("/proc/self/cwd", b, sizeof b);
	getcwd(path, sizeof path);
	HOLDS(n == (ssize_t)strlen(path) && !memcmp(b, path, n));
	n = readlink("/proc/self", b, sizeof b);
	b[n > 0 ? n : 0] = 0;
	HOLDS(atoi(b) == getpid());
	fd = MUST(open("/dev/null", O_RDONLY));
	sprintf(path, "/proc/self/fd/%d", fd);
	n = readlink(path, b, sizeof b);
	HOLDS(n == 9 && !memcmp(b, "/dev/null", 9));
	sprintf(path, "/proc/self/fdinfo/%d", fd);
	HOLDS(access("/proc/self/fd/99", F_OK) == -1);
	int pipes[2];
	pipe(pipes);
	sprintf(path, "/proc/self/fd/%d", pipes[0]);
	n = readlink(path, b, sizeof b);
	HOLDS(n > 6 && !memcmp(b, "pipe:[", 6));
	MUST(write(pipes[1], "reopened", 8));
	int again = open(path, O_RDONLY);
	memset(b, 0, 10);
	TRY(read(again, b, 9));
	say("%s", b);
	load("/proc/self/limits");
	HOLDS(strstr(text, "Limit                     Soft Limit           Hard Limit           Units") && strstr(text, "Max open files"));
	load("/proc/self/mounts");
	HOLDS(strstr(text, " /proc proc ") && strstr(text, " /sys sysfs "));
	load("/proc/self/oom_score_adj");
	say("oom_score_adj %s", strtok(text, "\n"));
	fd = MUST(open("/proc/self/oom_score_adj", O_WRONLY));
	TRY(write(fd, "500\n", 4));
	TRY(pwrite(fd, "5000\n", 5, 0));
	TRY(pwrite(fd, "x\n", 2, 0));
	load("/proc/self/oom_score_adj");
	say("oom_score_adj %s", strtok(text, "\n"));
	load("/proc/self/task");
	sprintf(path, "/proc/self/task/%d/comm", getpid());
	load(path);
	say("comm %s", strtok(text, "\n"));
	setenv("SOMETHING", "x", 1);
	load("/proc/self/environ");
	HOLDS(strstr(text, "SOMETHING") == NULL);

	/* of another process, running and ended */
	pid_t child = MUST(fork());
	if (child == 0)
		pause();
	until_blocked(child);
	sprintf(path, "/proc/%d/stat", child);
	load(path);
	HOLDS(sscanf(text, "%d (%39[^)]) %c %d", &pid, name, &state, &ppid) == 4 && pid == child && state == 'S' && ppid == getpid());
	DIR *d = opendir("/proc");
	int found = 0, me = 0;
	struct dirent *e;
	while ((e = readdir(d)))
		found += atoi(e->d_name) == child, me += atoi(e->d_name) == getpid();
	closedir(d);
	say("found %d me %d", found, me);
	kill(child, SIGKILL);
	until_state(child, child, 'Z');
	load(path);
	HOLDS(strchr(text, ')') && strchr(text, ')')[2] == 'Z');
	MUST(waitpid(child, NULL, 0));
	TRY(open(path, O_RDONLY));

	/* of a process whose leader has ended before another of its threads, and then of the whole process */
	child = MUST(fork());
	if (child == 0) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, sleep_for_ever, NULL))
			exit(98);
		syscall(SYS_exit, 0);
	}
	until_state(child, child, 'Z');
	say("leader gone");
	show_ended(child);
	kill(child, SIGKILL);
	int status;
	do
		sprintf(path, "/proc/%d/status", child), load(path);
	while (!strstr(text, "Threads:\t1\n"));
	say("all gone");
	show_ended(child);
	MUST(waitpid(child, &status, 0));
	say("status %x", status);

	/* of the machine */
	load("/proc/uptime");
	double up, idle;
	HOLDS(sscanf(text, "%lf %lf", &up, &idle) == 2 && up > 0);
	load("/proc/loadavg");
	double l1, l2, l3;
	int running, all;
	HOLDS(sscanf(text, "%lf %lf %lf %d/%d %d", &l1, &l2, &l3, &running, &all, &pid) == 6 && all >= 1);
	has("/proc/stat", "cpu cpu0 intr ctxt btime processes procs_running procs_blocked");
	load("/proc/version");
	HOLDS(!strncmp(text, "Linux version ", 14));
	load("/proc/cpuinfo");
	HOLDS(strstr(text, "processor\t: 0") && strstr(text, "model name\t: ") && strstr(text, "flags\t\t: "));
	load("/proc/filesystems");
	HOLDS(strstr(text, "nodev\tproc\n") && strstr(text, "nodev\ttmpfs\n"));
	HOLDS(load("/proc/cmdline")[0] != 0);
	load("/proc/sys/kernel/ostype");
	say("%s", strtok(text, "\n"));
	HOLDS(strlen(load("/proc/sys/kernel/osrelease")) > 2);
	HOLDS(strlen(load("/proc/sys/kernel/hostname")) > 1);
	HOLDS(atoi(load("/proc/sys/kernel/pid_max")) >= 32768 / 2);
	HOLDS(strlen(load("/proc/sys/kernel/random/boot_id")) == 37);
	HOLDS(strlen(load("/proc/sys/kernel/random/uuid")) == 37);
	HOLDS(atoi(load("/proc/sys/vm/min_free_kbytes")) > 0);
	HOLDS(atoi(load("/proc/sys/vm/overcommit_memory")) <= 2);
	TRY(open("/proc/none", O_RDONLY));
	TRY(open("/proc/999999/stat", O_RDONLY));
	TRY(open("/proc/new", O_CREAT | O_WRONLY, 0600));
	TRY(unlink("/proc/meminfo"));
	TRY(mkdir("/proc/x", 0755));
	fd = MUST(open("/proc/meminfo", O_RDONLY));
	TRY(read(fd, (void *)8, 100));
	memset(b, 0, 20);
	TRY(pread(fd, b, 8, 0));
	say("%s", b);
	TRY(pread(fd, b, 8, 1 << 20));
	struct stat st;
	fstat(fd, &st);
	say("mode %o size %ld", st.st_mode, (long)st.st_size);

	HOLDS(isdigit(load("/sys/devices/system/cpu/online")[0]));
	HOLDS(isdigit(load("/sys/devices/system/cpu/possible")[0]));
	HOLDS(isdigit(load("/sys/devices/system/cpu/present")[0]));
	HOLDS(access("/sys/devices/system/cpu/cpu0", F_OK) == 0);
	HOLDS(isdigit(load("/sys/devices/system/node/online")[0]));
	HOLDS(access("/sys/kernel/mm", F_OK) == 0);
	return 0;
}
