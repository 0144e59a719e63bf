/* Who may see what a process does, and where things are in its memory: files of /proc/PID, opened and read by others. */
#include "say.h"
#include <dirent.h>
#include <grp.h>
#include <sys/prctl.h>

#define ANN 1001
#define BOB 1002
#define COUNT(list) (sizeof list / sizeof *list)

static const char *files[] = { "syscall", "personality", "wchan", "environ", "auxv", "maps", "smaps", "smaps_rollup", "pagemap", "mem",
	"stat", "status", "cmdline", "limits", "fdinfo/0" };
static const char *folders[] = { "fd", "fdinfo", "task" };

static void become(uid_t uid)
{
	MUST(setgroups(0, 0));
	MUST(setresgid(uid, uid, uid));
	MUST(setresuid(uid, uid, uid));
}

/* Opens a file of the process and reads a little of it. */
static const char *look(int pid, const char *name)
{
	char path[64], bytes[64];
	snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return strerrorname_np(errno);
	/* Nothing is mapped at the start of memory. */
	ssize_t n = read(fd, bytes, sizeof bytes);
	int error = errno;
	close(fd);
	if (n < 0) {
		snprintf(path, sizeof path, "opens, %s", strerrorname_np(error));
		return strdup(path);
	}
	return n ? "text" : "empty";
}

static void look_at(const char *who, const char *what, int pid)
{
	say("%s looks at %s", who, what);
	for (size_t i = 0; i < COUNT(files); i++)
		say("  %s: %s", files[i], look(pid, files[i]));
	for (size_t i = 0; i < COUNT(folders); i++) {
		char path[64];
		snprintf(path, sizeof path, "/proc/%d/%s", pid, folders[i]);
		DIR *d = opendir(path);
		say("  %s: %s", folders[i], d ? "opens" : strerrorname_np(errno));
		if (d)
			closedir(d);
	}
}

#define AS(uid, ...) IN_CHILD("  that", { if (uid) become(uid); __VA_ARGS__; })

/* A process that waits, of this user, which others of its user may look into if it is open. */
static pid_t waits(uid_t uid, int is_open)
{
	int ready[2];
	char byte;
	MUST(pipe(ready));
	pid_t pid = MUST(fork());
	if (!pid) {
		if (uid)
			become(uid);
		prctl(PR_SET_DUMPABLE, is_open);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		MUST(write(ready[1], "", 1));
		for (;;)
			pause();
	}
	MUST(read(ready[0], &byte, 1));
	close(ready[0]);
	close(ready[1]);
	return pid;
}

/* Files that were opened while their process could be looked into, and what they show afterwards. */
static void kept(void)
{
	static const char *names[] = { "environ", "maps", "smaps", "syscall", "personality" };
	int to[2], from[2], fds[COUNT(names)];
	/* Others may not pass the folders that lead to it. */
	int self = MUST(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	char byte, bytes[64], path[64];
	MUST(pipe(to));
	MUST(pipe(from));
	pid_t pid = MUST(fork());
	if (!pid) {
		become(ANN);
		prctl(PR_SET_DUMPABLE, 1);
		MUST(write(from[1], "", 1));
		MUST(read(to[0], &byte, 1));
		char in[16], out[16], *words[] = { "looks", in, out, 0 }, *environment[] = { "A=1", 0 };
		snprintf(in, sizeof in, "%d", to[0]);
		snprintf(out, sizeof out, "%d", from[1]);
		fexecve(self, words, environment);
		say("exec: %s", strerrorname_np(errno));
		_exit(97);
	}
	MUST(read(from[0], &byte, 1));
	become(ANN);
	for (size_t i = 0; i < COUNT(names); i++) {
		snprintf(path, sizeof path, "/proc/%d/%s", pid, names[i]);
		fds[i] = MUST(open(path, O_RDONLY));
		HOLDS(read(fds[i], bytes, sizeof bytes) > 0);
	}
	MUST(write(to[1], "", 1));
	MUST(read(from[0], &byte, 1));
	say("after another program has begun, which hides");
	for (size_t i = 0; i < COUNT(names); i++) {
		MUST(lseek(fds[i], 0, SEEK_SET));
		ssize_t n = read(fds[i], bytes, sizeof bytes);
		say("  %s: %s", names[i], n < 0 ? strerrorname_np(errno) : n ? "text" : "empty");
	}
	kill(pid, SIGKILL);
	int status;
	MUST(waitpid(pid, &status, 0));
}

int main(int count, char **words)
{
	char byte;
	if (count == 3) {
		prctl(PR_SET_DUMPABLE, 0);
		MUST(write(atoi(words[2]), "", 1));
		read(atoi(words[1]), &byte, 1);
		return 0;
	}
	struct {
		const char *name;
		pid_t pid;
	} all[] = { { "ann's", waits(ANN, 1) }, { "a hidden one of ann's", waits(ANN, 0) }, { "root's", waits(0, 1) } };
	for (int i = 0; i < 3; i++) {
		int pid = all[i].pid;
		for (size_t j = 0; j < COUNT(files); j++) {
			char path[64];
			struct stat s;
			snprintf(path, sizeof path, "/proc/%d/%s", pid, files[j]);
			MUST(stat(path, &s));
			say("%s %s: %o of %d", all[i].name, files[j], s.st_mode, s.st_uid);
		}
		AS(0, look_at("root", all[i].name, pid));
		AS(ANN, look_at("ann", all[i].name, pid));
		AS(BOB, look_at("bob", all[i].name, pid));
	}
	AS(ANN, look_at("ann", "itself", getpid()));
	for (int i = 0; i < 3; i++) {
		kill(all[i].pid, SIGKILL);
		MUST(waitpid(all[i].pid, 0, 0));
	}
	kept();
	return 0;
}
