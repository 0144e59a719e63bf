/* What /proc shows of a process that has ended, and of one whose main thread has ended while another one runs. */
#include "say.h"
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

static char text[1 << 16];

/* Reads a file into `text`, and says its error or its length where that is the same everywhere. */
static void look(const char *folder, const char *name, int fixed)
{
	char path[64];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	int fd = open(path, O_RDONLY);
	text[0] = 0;
	if (fd < 0) {
		say("%s: open: %s", name, strerrorname_np(errno));
		return;
	}
	ssize_t n = read(fd, text, sizeof text - 1);
	if (n < 0)
		say("%s: read: %s", name, strerrorname_np(errno));
	else if (fixed)
		say("%s: %zd bytes", name, n);
	text[n < 0 ? 0 : n] = 0;
	close(fd);
}

static void entries(const char *folder, const char *name, int count)
{
	char path[64];
	int n = 0;
	snprintf(path, sizeof path, "%s/%s", folder, name);
	DIR *d = opendir(path);
	if (!d) {
		say("%s: %s", name, strerrorname_np(errno));
		return;
	}
	for (struct dirent *e; (e = readdir(d));)
		n++;
	closedir(d);
	if (count)
		say("%s: %d entries", name, n);
}

static void link_of(const char *folder, const char *name)
{
	char path[64], to[256];
	struct stat st;
	snprintf(path, sizeof path, "%s/%s", folder, name);
	ssize_t n = readlink(path, to, sizeof to);
	say("%s: %s, to it: %s", name, n < 0 ? strerrorname_np(errno) : "a link",
	    stat(path, &st) < 0 ? strerrorname_np(errno) : "a file");
}

/* All that is shown in a folder of /proc. */
static void show(const char *folder)
{
	static const char *const files[] = {"maps", "smaps", "smaps_rollup", "numa_maps", "environ", "auxv", "cmdline", "mounts", "mountinfo", "mountstats", "coredump_filter"};
	static const char *const lines[] = {"Name", "Umask", "State", "FDSize", "VmPeak", "VmSize", "VmRSS", "RssFile", "THP_enabled", "Threads"};
	static const char *const namespaces[] = {"ns/net", "ns/uts", "ns/ipc", "ns/pid", "ns/pid_for_children", "ns/user", "ns/mnt"};
	char c;

	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		look(folder, files[i], 1);
	look(folder, "comm", 0);
	say("comm: %s", text);
	look(folder, "statm", 0);
	say("statm: %s", text);
	look(folder, "oom_score", 0);
	say("oom_score: %s", atoi(text) ? "some" : "0");
	look(folder, "status", 0);
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		char key[32];
		snprintf(key, sizeof key, "\n%s:", lines[i]);
		char *at = i == 0 ? text : strstr(text, key);
		if (at)
			say("%.*s", (int)strcspn(at + (i != 0), "\n"), at + (i != 0));
		else
			say("%s: not there", lines[i]);
	}
	look(folder, "stat", 0);
	long long fields[50] = {0};
	char *at = strrchr(text, ')');
	if (at) {
		c = at[2];
		at += 3;
		for (int i = 0; i < 49; i++)
			fields[i] = strtoll(at, &at, 10);
		say("stat: %.*s %c threads %lld size %lld resident %lld arguments %lld", (int)(strrchr(text, ')') - strchr(text, '(')),
		    strchr(text, '('), c, fields[16], fields[19], fields[20], fields[44]);
	}
	int fd;
	char path[64];
	snprintf(path, sizeof path, "%s/mem", folder);
	fd = open(path, O_RDONLY);
	say("mem: open: %s", fd < 0 ? strerrorname_np(errno) : "yes");
	if (fd >= 0) {
		TRY(pread(fd, &c, 1, (off_t)text));
		close(fd);
	}
	snprintf(path, sizeof path, "%s/pagemap", folder);
	fd = open(path, O_RDONLY);
	say("pagemap: open: %s", fd < 0 ? strerrorname_np(errno) : "yes");
	if (fd >= 0) {
		TRY(read(fd, text, 8));
		close(fd);
	}
	link_of(folder, "exe");
	link_of(folder, "cwd");
	link_of(folder, "root");
	link_of(folder, "fd/0");
	for (size_t i = 0; i < sizeof namespaces / sizeof *namespaces; i++)
		link_of(folder, namespaces[i]);
	snprintf(path, sizeof path, "%s/coredump_filter", folder);
	fd = open(path, O_WRONLY);
	say("coredump_filter: open: %s", fd < 0 ? strerrorname_np(errno) : "yes");
	if (fd >= 0) {
		TRY(write(fd, "x", 1));
		TRY(write(fd, "0x33", 4));
		close(fd);
	}
	entries(folder, "fd", 1);
	entries(folder, "fdinfo", 1);
	entries(folder, "task", 1);
}

static char state_of(pid_t pid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n <= 0)
		return '?';
	close(fd);
	text[n] = 0;
	return strrchr(text, ')')[2];
}

static int gate[2];
static volatile int named;

static void *rest(void *arg)
{
	char c;
	prctl(PR_SET_NAME, "other");
	named = 1;
	read(gate[0], &c, 1);
	/* The main thread keeps a name that can be changed. */
	int fd = open("/proc/self/comm", O_RDWR);
	TRY(write(fd, "renamed", 7));
	close(fd);
	look("/proc/self", "comm", 0);
	say("comm: %s", text);
	look("/proc/thread-self", "comm", 0);
	say("comm: %s", text);
	_exit(7);
}

static void end_alone(void)
{
	pthread_t thread;

	prctl(PR_SET_NAME, "leader");
	if (pthread_create(&thread, NULL, rest, NULL))
		_exit(97);
	/* Its name is looked at once this thread has ended. */
	while (!named)
		sched_yield();
	pthread_exit(NULL);
}

int main(void)
{
	char folder[64];
	int status;

	MUST(pipe(gate));
	pid_t zombie = MUST(fork());
	if (zombie == 0) {
		prctl(PR_SET_NAME, "short");
		_exit(3);
	}
	while (state_of(zombie) != 'Z')
		sleep_ms(1);
	say("--- a process that has ended");
	snprintf(folder, sizeof folder, "/proc/%d", zombie);
	show(folder);
	snprintf(folder, sizeof folder, "/proc/%d/task/%d", zombie, zombie);
	say("--- its thread");
	look(folder, "smaps_rollup", 1);
	look(folder, "mounts", 1);
	entries(folder, "fd", 1);
	snprintf(folder, sizeof folder, "/proc/%d", zombie);
	int mounts = open("/proc/self/mounts", O_RDONLY);
	HOLDS(mounts >= 0);
	MUST(waitpid(zombie, &status, 0));
	say_status("it", status);
	look(folder, "mounts", 1);

	/* Whose the files are, of a user's process. */
	pid_t users = MUST(fork());
	if (users == 0) {
		char c;
		MUST(setuid(1000));
		MUST(prctl(PR_SET_DUMPABLE, 1));
		MUST(read(gate[0], &c, 1));
		_exit(0);
	}
	struct stat st = {0};
	snprintf(folder, sizeof folder, "/proc/%d/status", users);
	while (!stat(folder, &st) && st.st_uid != 1000)
		sleep_ms(1);
	say("a user's process: %d", (int)st.st_uid);
	MUST(write(gate[1], "x", 1));
	while (state_of(users) != 'Z')
		sleep_ms(1);
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = {"", "/status", "/fd"};
		snprintf(folder, sizeof folder, "/proc/%d%s", users, names[i]);
		TRY(stat(folder, &st));
		say("of the user's process that has ended%s: %d %o", names[i], (int)st.st_uid, st.st_mode);
	}
	MUST(waitpid(users, &status, 0));

	pid_t led = MUST(fork());
	if (led == 0)
		end_alone();
	while (state_of(led) != 'Z')
		sleep_ms(1);
	say("--- a process whose main thread has ended");
	snprintf(folder, sizeof folder, "/proc/%d", led);
	show(folder);
	say("--- its other thread");
	snprintf(folder, sizeof folder, "/proc/%d/task", led);
	DIR *d = opendir(folder);
	for (struct dirent *e; d && (e = readdir(d));)
		if (atoi(e->d_name) > led) {
			snprintf(folder, sizeof folder, "/proc/%d/task/%d", led, atoi(e->d_name));
			look(folder, "comm", 0);
			say("comm: %s", text);
			look(folder, "cmdline", 0);
			say("cmdline: %s", *text ? "some" : "none");
			look(folder, "maps", 0);
			say("maps: %s", *text ? "some" : "none");
			look(folder, "mounts", 0);
			say("mounts: %s", *text ? "some" : "none");
			link_of(folder, "cwd");
			link_of(folder, "fd/1");
		}
	closedir(d);
	MUST(write(gate[1], "x", 1));
	MUST(waitpid(led, &status, 0));
	say_status("it", status);
	return 0;
}
