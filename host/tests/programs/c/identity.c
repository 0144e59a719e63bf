/* Who and where a program is: ids, names, limits, auxiliary vector, affinity, randomness. */
#include "say.h"
#include <elf.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static void randomness(void)
{
	unsigned char a[300] = { 0 }, b[300] = { 0 };
	TRY(getrandom(a, 300, 0));
	TRY(getrandom(b, 300, GRND_NONBLOCK));
	HOLDS(memcmp(a, b, 300) != 0);
	int zeros = 0;
	for (int i = 0; i < 300; i++)
		zeros += a[i] == 0;
	HOLDS(zeros < 20);
	TRY(getrandom(a, 0, 0));
	TRY(getrandom(a, 10, 0x80));
	TRY(getrandom((void *)8, 10, 0));
	TRY(getentropy(a, 256));
	TRY(getentropy(a, 257));
	int fd = MUST(open("/dev/urandom", O_RDWR));
	TRY(read(fd, a, 300));
	HOLDS(memcmp(a, b, 300) != 0);
	TRY(write(fd, a, 10));
	unsigned char *seed = (void *)getauxval(AT_RANDOM);
	HOLDS(seed != NULL && memcmp(seed, "\0\0\0\0\0\0\0\0", 8) != 0);
	IN_CHILD("another", { unsigned char c[16]; getrandom(c, 16, 0); _exit(memcmp(c, a, 16) == 0); });
}

static void affinity(void)
{
	cpu_set_t all, one, got;
	CPU_ZERO(&all);
	HOLDS(sched_getaffinity(0, sizeof all, &all) == 0 && CPU_COUNT(&all) >= 1);
	HOLDS(sysconf(_SC_NPROCESSORS_ONLN) == CPU_COUNT(&all));
	HOLDS(get_nprocs_conf() >= CPU_COUNT(&all));
	for (int cpu = 0; cpu < CPU_COUNT(&all) && cpu < 8; cpu++) {
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof one, &one) || sched_getcpu() != cpu)
			say("cpu %d: %s, runs on %d", cpu, strerrorname_np(errno), sched_getcpu());
		unsigned here, node;
		syscall(SYS_getcpu, &here, &node, NULL);
		if ((int)here != cpu || node != 0)
			say("getcpu says %u on %u", here, node);
	}
	sched_getaffinity(0, sizeof got, &got);
	HOLDS(CPU_EQUAL(&got, &one));
	IN_CHILD("inherits", { CPU_ZERO(&got); sched_getaffinity(0, sizeof got, &got); _exit(CPU_EQUAL(&got, &one) ? 0 : 1); });
	CPU_ZERO(&one);
	TRY(sched_setaffinity(0, sizeof one, &one));
	TRY(sched_setaffinity(999999, sizeof all, &all));
	TRY(syscall(SYS_sched_getaffinity, 0, 1, &got));
	TRY(syscall(SYS_sched_getaffinity, 0, sizeof got, (void *)8));
	TRY(sched_setaffinity(0, sizeof all, &all));
	TRY(sched_yield());
	TRY(sched_getscheduler(0));
	struct sched_param param;
	TRY(sched_getparam(0, &param));
	say("priority %d", param.sched_priority);
	TRY(sched_get_priority_max(SCHED_FIFO));
	TRY(sched_get_priority_min(SCHED_FIFO));
	/* The user who runs the tests may have a niceness of their own. */
	int before = getpriority(PRIO_PROCESS, 0);
	HOLDS(before >= -20 && before <= 19);
	int expected = before + 5 > 19 ? 19 : before + 5;
	HOLDS(nice(5) == expected);
	HOLDS(getpriority(PRIO_PROCESS, 0) == expected);
	TRY(setpriority(PRIO_PROCESS, 0, 19));
	TRY(setpriority(77, 0, 19));
}

int main(int argc, char **argv, char **env)
{
	struct utsname u;
	TRY(uname(&u));
	say("%s %s", u.sysname, u.machine);
	HOLDS(strlen(u.release) > 2 && strlen(u.nodename) > 0 && strlen(u.version) > 0);
	say("%d %d %d %d", getuid(), geteuid(), getgid(), getegid());
	uid_t r, e, s;
	TRY(getresuid(&r, &e, &s));
	say("%d %d %d", r, e, s);
	HOLDS(getgroups(0, NULL) >= 0);
	HOLDS(getpid() == syscall(SYS_gettid));

	HOLDS(getauxval(AT_PAGESZ) == 4096);
	HOLDS(getauxval(AT_PHDR) != 0 && getauxval(AT_PHNUM) > 0 && getauxval(AT_PHENT) == 56);
	HOLDS(getauxval(AT_ENTRY) != 0);
	HOLDS(getauxval(AT_SECURE) == 0);
	HOLDS(getauxval(AT_CLKTCK) == 100);
	HOLDS(getauxval(AT_HWCAP) != 0);
	HOLDS(getauxval(AT_EXECFN) && strstr((char *)getauxval(AT_EXECFN), "identity") != NULL);
	HOLDS(getauxval(AT_PLATFORM) && !strcmp((char *)getauxval(AT_PLATFORM), "x86_64"));
	HOLDS(strstr(argv[0], "identity") != NULL && argc == 1 && argv[1] == NULL);
	int n = 0;
	while (env[n])
		n++;
	HOLDS(((size_t)argv & 7) == 0);
	say("page %ld, clock ticks %ld", sysconf(_SC_PAGESIZE), sysconf(_SC_CLK_TCK));

	char name[17] = "";
	TRY(prctl(PR_GET_NAME, name));
	say("name %s", name);
	TRY(prctl(PR_SET_NAME, "a-name-that-is-much-too-long"));
	TRY(prctl(PR_GET_NAME, name));
	say("name %s", name);
	int fd = MUST(open("/proc/self/comm", O_RDONLY));
	char comm[20] = "";
	MUST(read(fd, comm, 19));
	say("comm %s", strtok(comm, "\n"));
	TRY(prctl(PR_GET_DUMPABLE));
	TRY(prctl(PR_SET_PDEATHSIG, SIGTERM));
	int sig = 0;
	TRY(prctl(PR_GET_PDEATHSIG, &sig));
	say("%d", sig);
	TRY(prctl(PR_SET_PDEATHSIG, 0));
	TRY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	TRY(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	TRY(prctl(99999));

	struct rlimit limit;
	TRY(getrlimit(RLIMIT_NOFILE, &limit));
	HOLDS(limit.rlim_cur >= 256 && limit.rlim_cur <= limit.rlim_max);
	TRY(getrlimit(RLIMIT_STACK, &limit));
	HOLDS(limit.rlim_cur >= 1 << 20);
	TRY(getrlimit(99, &limit));
	limit.rlim_cur = 100;
	limit.rlim_max = 50;
	TRY(setrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 10;
	limit.rlim_max = 4000;
	TRY(setrlimit(RLIMIT_NOFILE, &limit));
	int last = -1;
	for (int i = 0; i < 20 && (fd = open("/dev/null", O_RDONLY)) >= 0; i++)
		last = fd;
	say("last descriptor %d, then %s", last, strerrorname_np(errno));
	for (fd = 3; fd < 10; fd++)
		close(fd);
	limit.rlim_cur = 0;
	TRY(setrlimit(RLIMIT_CORE, &limit));

	struct sysinfo info;
	TRY(sysinfo(&info));
	unsigned long long unit = info.mem_unit;
	HOLDS(info.totalram * unit > 64 << 20 && info.freeram <= info.totalram && info.procs > 0 && info.uptime >= 0);
	HOLDS(info.totalswap >= info.freeswap);
	char host[100];
	TRY(gethostname(host, 100));
	HOLDS(!strcmp(host, u.nodename));
	randomness();
	affinity();
	TRY(syscall(SYS_membarrier, 0, 0, 0) >= 0);
	TRY(syscall(9999));
	TRY(syscall(-1));
	HOLDS(ttyname(0) == NULL);
	TRY(isatty(0) + isatty(1) + isatty(2));
	return 0;
}
