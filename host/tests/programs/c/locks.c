/* Locks of files: who keeps whom from which bytes, who waits, what ends a wait or a lock. */
#include "say.h"
#include <pthread.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define NAME "locked"

static const char *kinds[] = { "read", "write", "none" };

static int lock(int fd, int command, int type, off_t start, off_t length)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
	return fcntl(fd, command, &l);
}

/* What a test of a lock finds; the holder's number only where it is `expected` or none. */
static void look(const char *text, int fd, int command, int type, off_t start, off_t length, pid_t expected)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
	if (fcntl(fd, command, &l) == -1)
		say("%s: %s", text, strerrorname_np(errno));
	else if (l.l_type == F_UNLCK)
		say("%s: free, start %ld length %ld", text, (long)l.l_start, (long)l.l_len);
	else
		say("%s: %s from %d %ld+%ld by %s", text, kinds[l.l_type], l.l_whence, (long)l.l_start, (long)l.l_len,
		    l.l_pid == -1 ? "an open file" : l.l_pid == expected ? "the right process" : "WHOM?");
}

/* Lists what others would find locked in the first bytes, byte by byte, as seen by a child. */
static void map_of(const char *text, int bytes)
{
	pid_t pid = MUST(fork());
	if (pid == 0) {
		char map[128] = "";
		int fd = open(NAME, O_RDWR);
		for (int i = 0; i < bytes; i++) {
			struct flock w = { .l_type = F_WRLCK, .l_start = i, .l_len = 1 };
			MUST(fcntl(fd, F_GETLK, &w));
			map[i] = w.l_type == F_UNLCK ? '.' : w.l_type == F_RDLCK ? 'r' : 'W';
		}
		say("%s: %s", text, map);
		_exit(0);
	}
	MUST(waitpid(pid, NULL, 0));
}

static void ranges(void)
{
	int fd = MUST(open(NAME, O_RDWR | O_CREAT | O_TRUNC, 0644));
	MUST(ftruncate(fd, 100));
	TRY(lock(fd, F_SETLK, F_WRLCK, 10, 20));
	map_of("one", 40);
	TRY(lock(fd, F_SETLK, F_UNLCK, 15, 5));
	map_of("split", 40);
	TRY(lock(fd, F_SETLK, F_RDLCK, 12, 10));
	map_of("read over it", 40);
	TRY(lock(fd, F_SETLK, F_WRLCK, 0, 12));
	map_of("write before it", 40);
	TRY(lock(fd, F_SETLK, F_RDLCK, 0, 40));
	map_of("read over all", 40);
	TRY(lock(fd, F_SETLK, F_UNLCK, 1, 1));
	TRY(lock(fd, F_SETLK, F_UNLCK, 38, 1));
	map_of("two holes", 40);
	TRY(lock(fd, F_SETLK, F_RDLCK, 1, 1));
	map_of("one hole", 40);
	pid_t self = getpid();
	IN_CHILD("looker", {
		look("merged", fd, F_GETLK, F_WRLCK, 20, 1, self);
		look("a reader beside readers", fd, F_GETLK, F_RDLCK, 20, 1, self);
		look("the rest", fd, F_GETLK, F_WRLCK, 39, 0, self);
		look("the hole", fd, F_GETLK, F_WRLCK, 38, 1, self);
		look("before the end", fd, F_GETLK, F_WRLCK, 45, -6, self);
	});
	TRY(lock(fd, F_SETLK, F_UNLCK, 0, 0));
	map_of("nothing", 40);
	for (int i = 0; i < 40; i += 2)
		MUST(lock(fd, F_SETLK, i % 4 ? F_RDLCK : F_WRLCK, i, 1));
	map_of("comb", 40);
	MUST(lock(fd, F_SETLK, F_UNLCK, 7, 20));
	map_of("broken comb", 40);
	MUST(lock(fd, F_SETLK, F_WRLCK, 3, 30));
	map_of("filled comb", 40);
	MUST(lock(fd, F_SETLK, F_WRLCK, 33, 0));
	IN_CHILD("looker", look("to the end", fd, F_GETLK, F_WRLCK, 1000, 5, self));
	close(fd);
	map_of("closed", 40);
}

static void numbers(void)
{
	int fd = MUST(open(NAME, O_RDWR));
	MUST(lseek(fd, 50, SEEK_SET));
	static const struct { int whence; long start, length; } cases[] = {
		{ SEEK_SET, 0, 0 }, { SEEK_SET, 5, 3 }, { SEEK_SET, 5, -5 }, { SEEK_SET, 5, -6 },
		{ SEEK_SET, -1, 0 }, { SEEK_SET, -1, 5 }, { SEEK_CUR, -50, 1 }, { SEEK_CUR, -51, 1 },
		{ SEEK_CUR, 0, -50 }, { SEEK_CUR, 0, -51 }, { SEEK_END, 0, 0 }, { SEEK_END, -100, 5 },
		{ SEEK_END, -101, 5 }, { SEEK_END, 0, -100 }, { SEEK_END, 10, -110 }, { SEEK_END, 10, -111 },
		{ SEEK_SET, INT64_MAX, 0 }, { SEEK_SET, INT64_MAX, 1 }, { SEEK_SET, INT64_MAX, 2 },
		{ SEEK_SET, 1, INT64_MAX }, { SEEK_SET, 2, INT64_MAX }, { SEEK_CUR, INT64_MAX - 50, 1 },
		{ SEEK_CUR, INT64_MAX - 49, 1 }, { SEEK_CUR, INT64_MAX, -1 }, { SEEK_SET, INT64_MIN, INT64_MIN },
		{ SEEK_CUR, INT64_MIN, 0 }, { SEEK_SET, INT64_MAX, INT64_MIN }, { 3, 0, 0 }, { -1, 0, 0 }, { 4, 0, 0 },
	};
	for (int i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct flock l = { .l_type = F_WRLCK, .l_whence = cases[i].whence, .l_start = cases[i].start, .l_len = cases[i].length };
		int r = fcntl(fd, F_SETLK, &l);
		say("%d %ld %ld: %s", cases[i].whence, cases[i].start, cases[i].length, r ? strerrorname_np(errno) : "locked");
		if (r == 0) {
			IN_CHILD("looker", look("others find", fd, F_GETLK, F_RDLCK, 0, 0, getppid()));
			MUST(lock(fd, F_SETLK, F_UNLCK, 0, 0));
		}
	}
	close(fd);
}

static void errors(void)
{
	int both = MUST(open(NAME, O_RDWR)), reads = MUST(open(NAME, O_RDONLY)), writes = MUST(open(NAME, O_WRONLY));
	int path = MUST(open(NAME, O_PATH)), none = MUST(open(NAME, 3));
	int fds[] = { both, reads, writes, path, none, 999 };
	const char *names[] = { "both", "reads", "writes", "path", "none", "closed" };
	for (int i = 0; i < 6; i++)
		for (int type = 0; type < 5; type++) {
			errno = 0;
			int set = lock(fds[i], F_SETLK, type, 0, 1), set_error = errno;
			int ofd = lock(fds[i], F_OFD_SETLK, type, 50, 1), ofd_error = errno;
			int get = lock(fds[i], F_GETLK, type, 0, 1), get_error = errno;
			say("%s %d: %d %s, %d %s, %d %s", names[i], type, set, set ? strerrorname_np(set_error) : "", ofd,
			    ofd ? strerrorname_np(ofd_error) : "", get, get ? strerrorname_np(get_error) : "");
		}
	static const int operations[] = { LOCK_SH, LOCK_EX, LOCK_UN, LOCK_NB, LOCK_SH | LOCK_EX, 0, LOCK_UN | LOCK_NB, 16, 64, -1, LOCK_MAND };
	for (int i = 0; i < 6; i++)
		for (int k = 0; k < sizeof operations / sizeof *operations; k++) {
			errno = 0;
			int r = flock(fds[i], operations[k]);
			say("flock %s %d: %d %s", names[i], operations[k], r, r ? strerrorname_np(errno) : "");
			flock(fds[i], LOCK_UN);
		}
	struct flock l = { .l_type = F_RDLCK, .l_pid = 7 };
	TRY(fcntl(both, F_OFD_SETLK, &l));
	TRY(fcntl(both, F_OFD_SETLKW, &l));
	TRY(fcntl(both, F_OFD_GETLK, &l));
	TRY(fcntl(both, F_SETLK, &l));
	TRY(fcntl(both, F_SETLK, (void *)8));
	TRY(fcntl(both, F_GETLK, (void *)8));
	TRY(fcntl(path, F_GETLK, &l));
	/* Descriptors that are not shared stay the same ones, and their locks with them. */
	MUST(lock(both, F_SETLK, F_WRLCK, 3, 1));
	TRY(syscall(SYS_close_range, 900, 1000, 2 /* CLOSE_RANGE_UNSHARE */));
	map_of("descriptors unshared", 8);
	char c;
	TRY(read(none, &c, 1));
	TRY(write(none, "", 1));
	close(both), close(reads), close(writes), close(path), close(none);
}

/* Any open and close of the file ends a process's POSIX locks of it, and no others. */
static void ends(void)
{
	int fd = MUST(open(NAME, O_RDWR)), other = MUST(open(NAME, O_RDONLY));
	pid_t self = getpid();
	MUST(lock(fd, F_SETLK, F_WRLCK, 0, 4));
	MUST(lock(fd, F_OFD_SETLK, F_WRLCK, 8, 4));
	TRY(lock(other, F_OFD_SETLK, F_RDLCK, 8, 1));
	TRY(lock(fd, F_SETLK, F_WRLCK, 8, 1));
	map_of("own and open file's", 16);
	close(other);
	map_of("after a close", 16);
	MUST(lock(fd, F_SETLK, F_WRLCK, 0, 4));
	int copy = MUST(dup(fd));
	close(copy);
	map_of("after a close of a copy", 16);
	MUST(lock(fd, F_SETLK, F_WRLCK, 0, 4));
	other = MUST(open("/dev/null", O_RDONLY));
	copy = MUST(dup(fd));
	MUST(dup2(other, copy));
	map_of("after dup2 over a copy", 16);
	close(other), close(copy);
	MUST(lock(fd, F_SETLK, F_WRLCK, 0, 4));
	IN_CHILD("a child's close ends none", close(fd));
	map_of("after a child's close", 16);
	IN_CHILD("child", {
		look("inherited", fd, F_GETLK, F_RDLCK, 0, 1, self);
		TRY(lock(fd, F_SETLK, F_WRLCK, 0, 4));
		TRY(lock(fd, F_OFD_SETLK, F_WRLCK, 8, 8));
	});
	map_of("a child widens the open file's", 20);
	copy = MUST(dup(fd));
	close(fd);
	map_of("open file with a copy", 20);
	close(copy);
	map_of("open file closed", 20);

	fd = MUST(open(NAME, O_RDWR)), other = MUST(open(NAME, O_RDWR));
	TRY(flock(fd, LOCK_SH));
	TRY(flock(other, LOCK_SH));
	TRY(flock(fd, LOCK_EX | LOCK_NB));
	TRY(flock(other, LOCK_EX | LOCK_NB));
	TRY(flock(fd, LOCK_SH | LOCK_NB));
	IN_CHILD("a child unlocks it", flock(other, LOCK_UN));
	TRY(flock(fd, LOCK_EX | LOCK_NB));
	copy = MUST(dup(fd));
	close(fd);
	TRY(flock(other, LOCK_SH | LOCK_NB));
	close(copy);
	TRY(flock(other, LOCK_SH | LOCK_NB));
	/* The two worlds do not know of each other. */
	IN_CHILD("the other world", {
		int own = open(NAME, O_RDWR);
		TRY(lock(own, F_SETLK, F_WRLCK, 0, 0));
	});
	close(other);
}

static char letter(pid_t pid)
{
	char path[64], text[256] = "";
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY);
	if (fd == -1)
		return '?';
	read(fd, text, sizeof text - 1);
	close(fd);
	char *end = strrchr(text, ')');
	return end ? end[2] : '?';
}

/* Waits until a child sleeps in its call. */
static void until_asleep(pid_t pid)
{
	for (int calm = 0; calm < 5; sleep_ms(2))
		calm = letter(pid) == 'S' ? calm + 1 : 0;
}

static void caught(int number)
{
}

static void waits(void)
{
	int fd = MUST(open(NAME, O_RDWR));
	static const char *names[] = { "POSIX", "open file", "flock" };
	for (int style = 0; style < 3; style++)
		for (int restart = 0; restart < 2; restart++)
			for (int end = 0; end < 5; end++) {
				if (style == 0)
					MUST(lock(fd, F_SETLK, F_WRLCK, 0, 10));
				else if (style == 1)
					MUST(lock(fd, F_OFD_SETLK, F_WRLCK, 0, 10));
				else
					MUST(flock(fd, LOCK_EX));
				pid_t pid = MUST(fork());
				if (pid == 0) {
					struct sigaction action = { .sa_handler = caught, .sa_flags = restart ? SA_RESTART : 0 };
					sigaction(SIGUSR1, &action, NULL);
					int own = open(NAME, O_RDWR);
					int r = style == 0 ? lock(own, F_SETLKW, F_WRLCK, 5, 10)
						: style == 1 ? lock(own, F_OFD_SETLKW, F_RDLCK, 5, 10) : flock(own, LOCK_SH);
					_exit(r == 0 ? 0 : errno == EINTR ? 1 : 2);
				}
				until_asleep(pid);
				if (end == 1)
					kill(pid, SIGUSR1);
				if (end == 1 && restart)
					until_asleep(pid);
				if (end == 2)
					kill(pid, SIGKILL);
				if (end == 3) {
					int status;
					kill(pid, SIGSTOP);
					MUST(waitpid(pid, &status, WUNTRACED));
					say_status("waiter", status);
					kill(pid, SIGCONT);
					until_asleep(pid);
				}
				if (end == 4 && style == 0)
					close(MUST(open(NAME, O_RDONLY)));
				else if ((end != 1 || restart) && end != 2) {
					if (style == 2)
						MUST(flock(fd, LOCK_UN));
					else
						MUST(lock(fd, style ? F_OFD_SETLK : F_SETLK, F_UNLCK, 5, 5));
				}
				int status;
				MUST(waitpid(pid, &status, 0));
				say("%s restart %d end %d", names[style], restart, end);
				say_status("waiter", status);
				flock(fd, LOCK_UN);
				lock(fd, F_OFD_SETLK, F_UNLCK, 0, 0);
				lock(fd, F_SETLK, F_UNLCK, 0, 0);
			}
	/* A holder that is killed or ends. */
	for (int end = 0; end < 2; end++) {
		int p[2];
		MUST(pipe(p));
		pid_t holder = MUST(fork());
		if (holder == 0) {
			int own = open(NAME, O_RDWR);
			MUST(lock(own, F_SETLK, F_WRLCK, 0, 1));
			MUST(lock(own, F_OFD_SETLK, F_WRLCK, 1, 1));
			MUST(flock(own, LOCK_EX));
			write(p[1], "", 1);
			for (;;)
				pause();
		}
		char c;
		read(p[0], &c, 1);
		pid_t waiter = MUST(fork());
		if (waiter == 0) {
			MUST(lock(fd, F_SETLKW, F_WRLCK, 0, 2));
			MUST(flock(fd, LOCK_EX));
			_exit(7);
		}
		until_asleep(waiter);
		kill(holder, end ? SIGKILL : SIGTERM);
		int status;
		MUST(waitpid(waiter, &status, 0));
		say_status("waiter", status);
		MUST(waitpid(holder, &status, 0));
		say_status("holder", status);
		flock(fd, LOCK_UN);
		close(p[0]), close(p[1]);
	}
	close(fd);
}

/* Each of `count` processes holds a byte and waits for the next one's: the last to ask is refused. */
static void deadlock(int count)
{
	int fd = MUST(open(NAME, O_RDWR)), ready[2], go[16][2], status;
	pid_t pids[16];
	MUST(pipe(ready));
	for (int i = 0; i < count; i++) {
		MUST(pipe(go[i]));
		if ((pids[i] = MUST(fork())) == 0) {
			char c;
			MUST(lock(fd, F_SETLK, F_WRLCK, i, 1));
			write(ready[1], "", 1);
			read(go[i][0], &c, 1);
			int r = lock(fd, F_SETLKW, F_WRLCK, (i + 1) % count, 1);
			_exit(r == 0 ? 0 : errno == EDEADLK ? 1 : 2);
		}
		char c;
		read(ready[0], &c, 1);
	}
	for (int i = 0; i < count; i++) {
		write(go[i][1], "", 1);
		if (i < count - 1) {
			/* It has left its read when the byte is gone. */
			int left = 1;
			while (left)
				MUST(ioctl(go[i][0], FIONREAD, &left));
			until_asleep(pids[i]);
		}
	}
	/* The last one is refused; by its end the others get their locks, from the last to the first. */
	for (int i = count - 1; i >= 0; i--) {
		MUST(waitpid(pids[i], &status, 0));
		say("%d in a circle, number %d: %d", count, i, WEXITSTATUS(status));
		close(go[i][0]), close(go[i][1]);
	}
	close(ready[0]), close(ready[1]), close(fd);
}

static void *by_thread(void *number)
{
	int fd = *(int *)number;
	say("a thread's lock beside its own process's: %d", lock(fd, F_SETLK, F_WRLCK, 0, 10));
	say("its flock: %d", flock(fd, LOCK_EX | LOCK_NB));
	int again = MUST(open(NAME, O_RDWR));
	say("an open file of its own: %d %s", flock(again, LOCK_EX | LOCK_NB), strerrorname_np(errno));
	close(again);
	return NULL;
}

static int sharer(void *number)
{
	int fd = *(int *)number;
	say("with shared descriptors: %d", lock(fd, F_SETLK, F_WRLCK, 0, 10));
	return 0;
}

static void sharing(char *program)
{
	int fd = MUST(open(NAME, O_RDWR));
	MUST(lock(fd, F_SETLK, F_WRLCK, 0, 10));
	MUST(flock(fd, LOCK_SH));
	pthread_t thread;
	pthread_create(&thread, NULL, by_thread, &fd);
	pthread_join(thread, NULL);
	map_of("the thread closed the file", 12);
	MUST(lock(fd, F_SETLK, F_WRLCK, 0, 10));
	static char stack[1 << 16];
	int status;
	pid_t pid = MUST(clone(sharer, stack + sizeof stack, CLONE_FILES | CLONE_VM | SIGCHLD, &fd));
	MUST(waitpid(pid, &status, 0));
	map_of("the sharer has ended", 12);
	TRY(unshare(CLONE_FILES));
	map_of("unshared", 12);
	/* Exec keeps a process's locks, but those of files that it closes. */
	for (int cloexec = 0; cloexec < 2; cloexec++) {
		pid = MUST(fork());
		if (pid == 0) {
			MUST(lock(fd, F_SETLK, F_UNLCK, 0, 0));
			int own = open("other", O_RDWR | O_CREAT | (cloexec ? O_CLOEXEC : 0), 0644);
			MUST(lock(own, F_SETLK, F_WRLCK, 0, 1));
			MUST(flock(own, LOCK_EX));
			execl(program, program, cloexec ? "closed" : "kept", NULL);
			_exit(9);
		}
		MUST(waitpid(pid, &status, 0));
		say_status("the new program", status);
	}
	close(fd);
}

/* In the new program: what is left of its locks, as a child sees it. */
static int after_exec(const char *name)
{
	pid_t self = getpid();
	IN_CHILD(name, {
		int own = open("other", O_RDWR);
		look(name, own, F_GETLK, F_WRLCK, 0, 0, self);
		TRY(flock(own, LOCK_EX | LOCK_NB));
	});
	return 0;
}

/* Lines of /proc/locks about this file, without the counts, sorted; numbers of processes as names. */
static void shown(const char *path, const char *before)
{
	struct stat st;
	MUST(stat(NAME, &st));
	char inode[32], lines[16][128], line[256];
	snprintf(inode, sizeof inode, ":%lu ", (unsigned long)st.st_ino);
	int count = 0;
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof line, file) && count < 16) {
		char *from = strstr(line, before);
		if (!from || !strstr(line, inode))
			continue;
		char arrow[8] = "", class[16], mode[16], kind[16], device[64], first[32], last[32];
		int pid, number;
		from += strlen(before);
		if (sscanf(from, "%d: -> %15s %15s %15s %d %63s %31s %31s", &number, class, mode, kind, &pid, device, first, last) == 8)
			strcpy(arrow, "-> ");
		else if (sscanf(from, "%d: %15s %15s %15s %d %63s %31s %31s", &number, class, mode, kind, &pid, device, first, last) != 8)
			say("odd line: %s", line);
		snprintf(lines[count++], 128, "%s%s %s %s %s %s %s", arrow, class, mode, kind,
			 pid == -1 ? "-1" : pid == getpid() ? "self" : "other", first, last);
	}
	if (file)
		fclose(file);
	qsort(lines, count, 128, (int (*)(const void *, const void *))strcmp);
	for (int i = 0; i < count; i++)
		say("%s", lines[i]);
	say("%d lines", count);
}

static void listed(void)
{
	int fd = MUST(open(NAME, O_RDWR)), other = MUST(open(NAME, O_RDWR));
	MUST(lock(fd, F_SETLK, F_WRLCK, 10, 5));
	MUST(lock(fd, F_SETLK, F_RDLCK, 100, 0));
	MUST(lock(other, F_SETLK, F_RDLCK, 30, 1));
	MUST(lock(other, F_OFD_SETLK, F_RDLCK, 0, 1));
	MUST(flock(fd, LOCK_EX));
	pid_t pids[2];
	for (int i = 0; i < 2; i++)
		if ((pids[i] = MUST(fork())) == 0) {
			/* Or the open files last as long as the child. */
			close(fd), close(other);
			int own = open(NAME, O_RDWR);
			if (i)
				lock(own, F_SETLKW, F_RDLCK, 12, 1);
			else
				flock(own, LOCK_SH);
			_exit(0);
		}
	until_asleep(pids[0]), until_asleep(pids[1]);
	shown("/proc/locks", "");
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	shown(path, "lock:\t");
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", other);
	shown(path, "lock:\t");
	close(fd), close(other);
	MUST(wait(NULL)), MUST(wait(NULL));
	shown("/proc/locks", "");
}

/* What can be locked besides plain files. */
static void kinds_of_files(void)
{
	int pair[2], ends[2];
	MUST(pipe(pair));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	mkdir("folder", 0755);
	struct { const char *name; int fd; } all[] = {
		{ "directory", open("folder", O_RDONLY | O_DIRECTORY) }, { "pipe", pair[0] }, { "pipe to write", pair[1] },
		{ "socket", ends[0] }, { "memfd", memfd_create("m", 0) }, { "null", open("/dev/null", O_RDWR) },
	};
	for (int i = 0; i < sizeof all / sizeof *all; i++) {
		say("%s:", all[i].name);
		int fd = all[i].fd;
		char path[64];
		TRY(lock(fd, F_SETLK, F_RDLCK, 0, 0));
		TRY(lock(fd, F_SETLK, F_WRLCK, 0, 0));
		TRY(flock(fd, LOCK_EX | LOCK_NB));
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		int again = open(path, O_RDONLY | O_NONBLOCK);
		if (again != -1) {
			TRY(flock(again, LOCK_SH | LOCK_NB));
			TRY(lock(again, F_OFD_SETLK, F_RDLCK, 0, 1));
			close(again);
		}
		close(fd);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return after_exec(argv[1]);
	char program[256];
	ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
	program[n] = 0;
	ranges();
	numbers();
	errors();
	ends();
	waits();
	for (int count = 2; count <= 9; count++)
		deadlock(count);
	sharing(program);
	listed();
	kinds_of_files();
	unlink(NAME);
	return 0;
}
