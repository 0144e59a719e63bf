/* What inotify tells of files in memory, and in what order. */
#include "say.h"
#include "blocked.h"
#include <sys/vfs.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static int in;
static uint32_t cookies[64];
static int known_cookies;

static const char *names[] = { "ACCESS", "MODIFY", "ATTRIB", "CLOSE_WRITE", "CLOSE_NOWRITE", "OPEN",
	"MOVED_FROM", "MOVED_TO", "CREATE", "DELETE", "DELETE_SELF", "MOVE_SELF", "?", "UNMOUNT",
	"Q_OVERFLOW", "IGNORED" };

/* Cookies differ; which are the same does not. */
static int cookie(uint32_t c)
{
	if (c == 0)
		return 0;
	for (int i = 0; i < known_cookies; i++)
		if (cookies[i] == c)
			return i + 1;
	if (known_cookies == 64)
		known_cookies = 0;
	cookies[known_cookies++] = c;
	return known_cookies;
}

static void say_event(const struct inotify_event *e)
{
	char text[256] = "";
	for (int i = 0; i < 16; i++)
		if (e->mask >> i & 1)
			sprintf(text + strlen(text), " %s", names[i]);
	if (e->mask & IN_ISDIR)
		strcat(text, " ISDIR");
	say("  wd %d%s cookie %d len %u %s", e->wd, text, cookie(e->cookie), e->len, e->len ? e->name : "");
}

static void drain_(int fd, const char *what)
{
	static char b[65536] __attribute__((aligned(8)));
	int bytes = -1;
	ioctl(fd, FIONREAD, &bytes);
	ssize_t n = read(fd, b, sizeof b);
	say("%s: %d bytes", what, bytes);
	if (n > 0 && n != bytes)
		say("  read %zd", n);
	for (ssize_t at = 0; at < n; at += sizeof(struct inotify_event) + ((struct inotify_event *)(b + at))->len)
		say_event((void *)(b + at));
}

#define DRAIN(what) drain_(in, what)
#define WATCH(path, mask) ({ errno = 0; int w_ = inotify_add_watch(in, path, mask); int e_ = errno; \
	say_result("watch " path " " #mask, w_, e_); w_; })

static void errors(void)
{
	TRY(inotify_init1(1));
	TRY(inotify_init1(IN_NONBLOCK | 1));
	in = MUST(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
	TRY(fcntl(in, F_GETFD));
	TRY(fcntl(in, F_GETFL));
	struct stat st;
	MUST(fstat(in, &st));
	say("mode %o", st.st_mode);
	char b[300], path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", in);
	memset(b, 0, sizeof b);
	MUST(readlink(path, b, sizeof b - 1));
	say("%s", b);
	TRY(read(in, b, sizeof b));
	TRY(write(in, b, 1));
	TRY(inotify_add_watch(in, "/tmp", 0));
	TRY(inotify_add_watch(in, "/tmp", 0x1000));
	TRY(inotify_add_watch(in, "/tmp", IN_ALL_EVENTS | 0x00800000));
	TRY(inotify_add_watch(999, "/tmp", IN_OPEN));
	TRY(inotify_add_watch(0, "/tmp", IN_OPEN));
	TRY(inotify_add_watch(in, "/tmp/none", IN_OPEN));
	TRY(inotify_add_watch(in, (void *)8, IN_OPEN));
	TRY(inotify_add_watch(in, "", IN_OPEN));
	TRY(inotify_add_watch(in, "/tmp", IN_OPEN | IN_MASK_ADD | IN_MASK_CREATE));
	close(creat("/tmp/plain", 0600));
	TRY(inotify_add_watch(in, "/tmp/plain", IN_OPEN | IN_ONLYDIR));
	TRY(inotify_rm_watch(in, 1));
	TRY(inotify_rm_watch(999, 1));
	TRY(inotify_rm_watch(0, 1));
	WATCH("/tmp/plain", IN_OPEN);
	WATCH("/tmp/plain", IN_OPEN | IN_MASK_CREATE);
	WATCH("/tmp/plain", IN_CLOSE | IN_MASK_ADD);
	close(open("/tmp/plain", O_RDONLY));
	DRAIN("opened and closed");
	WATCH("/tmp/plain", IN_MODIFY);
	close(open("/tmp/plain", O_RDONLY));
	DRAIN("replaced");
	TRY(inotify_rm_watch(in, 1));
	TRY(inotify_rm_watch(in, 1));
	DRAIN("removed");
	WATCH("/tmp/plain", IN_ONESHOT | IN_OPEN);
	close(open("/tmp/plain", O_RDONLY));
	close(open("/tmp/plain", O_RDONLY));
	DRAIN("once");
	TRY(inotify_rm_watch(in, 2));
	/* Room for a header alone, and too little. */
	WATCH("/tmp", IN_CREATE);
	close(creat("/tmp/some name", 0600));
	TRY(read(in, b, 0));
	TRY(read(in, b, 15));
	TRY(read(in, b, 31));
	TRY(read(in, (void *)8, 300));
	TRY(read(in, b, 300));
	close(creat("/tmp/a", 0600));
	mkdir("/tmp/b", 0700);
	TRY(read(in, b, 40));
	TRY(read(in, b, 40));
	unlink("/tmp/a"); rmdir("/tmp/b"); unlink("/tmp/some name"); unlink("/tmp/plain");
	close(in);
}

static void files(void)
{
	in = MUST(inotify_init1(IN_NONBLOCK));
	mkdir("/tmp/d", 0755);
	WATCH("/tmp/d", IN_ALL_EVENTS);
	char b[100];
	int f = MUST(open("/tmp/d/f", O_RDWR | O_CREAT | O_EXCL, 0644));
	DRAIN("created");
	WATCH("/tmp/d/f", IN_ALL_EVENTS);
	MUST(write(f, "hello", 5));
	DRAIN("written");
	MUST(write(f, "hello", 5));
	MUST(pwrite(f, "hello", 5, 0));
	DRAIN("written twice");
	TRY(write(f, b, 0));
	TRY(read(f, b, 10));
	DRAIN("nothing");
	MUST(pread(f, b, 5, 0));
	MUST(lseek(f, 0, SEEK_SET));
	struct iovec v = { b, 10 };
	MUST(readv(f, &v, 1));
	DRAIN("read");
	MUST(ftruncate(f, 100));
	DRAIN("cut");
	MUST(truncate("/tmp/d/f", 10));
	DRAIN("cut by name");
	MUST(fallocate(f, 0, 0, 4096));
	DRAIN("allocated");
	MUST(fchmod(f, 0600));
	DRAIN("mode");
	MUST(chmod("/tmp/d/f", 0644));
	MUST(chown("/tmp/d/f", 1, 1));
	DRAIN("mode and owner by name");
	MUST(chown("/tmp/d/f", -1, -1));
	DRAIN("no owner");
	MUST(fchown(f, 0, 0));
	DRAIN("owner");
	struct timespec t[2] = { { 1, 0 }, { 2, 0 } };
	MUST(futimens(f, t));
	DRAIN("times");
	t[1].tv_nsec = UTIME_OMIT;
	MUST(utimensat(AT_FDCWD, "/tmp/d/f", t, 0));
	DRAIN("access time");
	t[0].tv_nsec = UTIME_OMIT; t[1].tv_nsec = 5;
	MUST(utimensat(AT_FDCWD, "/tmp/d/f", t, 0));
	DRAIN("modification time");
	t[1].tv_nsec = UTIME_OMIT;
	MUST(utimensat(AT_FDCWD, "/tmp/d/f", t, 0));
	DRAIN("no time");
	int g = MUST(open("/tmp/d/g", O_WRONLY | O_CREAT, 0644));
	DRAIN("another");
	MUST(lseek(f, 0, SEEK_SET));
	MUST(sendfile(g, f, 0, 5));
	DRAIN("sendfile");
	loff_t from = 0, to = 5;
	MUST(copy_file_range(f, &from, g, &to, 5, 0));
	DRAIN("copy_file_range");
	int through[2];
	MUST(pipe(through));
	from = 0;
	MUST(splice(f, &from, through[1], 0, 5, 0));
	MUST(splice(through[0], 0, g, 0, 5, 0));
	DRAIN("splice");
	close(through[0]); close(through[1]);
	close(g);
	DRAIN("closed");
	int dup_ = dup(f);
	close(f);
	DRAIN("closed one of two");
	close(dup_);
	DRAIN("closed the other");
	close(MUST(open("/tmp/d/f", O_RDWR | O_TRUNC)));
	DRAIN("opened and cut");
	close(MUST(open("/tmp/d/f", O_PATH)));
	DRAIN("a path");
	TRY(open("/tmp/d/f", O_RDWR | O_CREAT | O_EXCL, 0644));
	TRY(open("/tmp/d/f/x", O_RDWR));
	struct stat st;
	MUST(stat("/tmp/d/f", &st));
	TRY(access("/tmp/d/f", R_OK));
	DRAIN("looked");
	MUST(link("/tmp/d/f", "/tmp/d/l"));
	DRAIN("linked");
	MUST(unlink("/tmp/d/l"));
	DRAIN("one name less");
	MUST(symlink("f", "/tmp/d/s"));
	close(MUST(open("/tmp/d/s", O_RDONLY)));
	DRAIN("through a link");
	WATCH("/tmp/d/s", IN_ALL_EVENTS);
	WATCH("/tmp/d/s", IN_ALL_EVENTS | IN_DONT_FOLLOW);
	MUST(readlink("/tmp/d/s", b, 10));
	MUST(unlink("/tmp/d/s"));
	DRAIN("a link");
	MUST(mkfifo("/tmp/d/p", 0600));
	int p = MUST(open("/tmp/d/p", O_RDWR));
	MUST(write(p, "x", 1));
	MUST(read(p, b, 1));
	close(p);
	DRAIN("a fifo");
	MUST(unlink("/tmp/d/p"));
	MUST(unlink("/tmp/d/g"));
	DRAIN("deleted");
	/* The end of a file: at once, or with the last who has it open. */
	f = MUST(open("/tmp/d/f", O_RDONLY));
	DRAIN("opened");
	MUST(unlink("/tmp/d/f"));
	DRAIN("deleted, but open");
	MUST(read(f, b, 5) + 1);
	DRAIN("read");
	close(f);
	DRAIN("gone");
	close(MUST(creat("/tmp/d/f", 0600)));
	WATCH("/tmp/d/f", IN_DELETE_SELF);
	DRAIN("new");
	MUST(unlink("/tmp/d/f"));
	DRAIN("gone at once");
	/* Not what happens to files that have left. */
	WATCH("/tmp/d", IN_ALL_EVENTS | IN_EXCL_UNLINK);
	f = MUST(open("/tmp/d/f", O_RDWR | O_CREAT, 0600));
	MUST(write(f, "x", 1));
	MUST(unlink("/tmp/d/f"));
	MUST(write(f, "x", 1));
	close(f);
	DRAIN("excluded");
	WATCH("/tmp/d", IN_ALL_EVENTS);
	f = MUST(open("/tmp/d/f", O_RDWR | O_CREAT, 0600));
	MUST(unlink("/tmp/d/f"));
	MUST(write(f, "x", 1));
	close(f);
	DRAIN("included");
	f = MUST(open("/tmp/d", O_RDWR | O_TMPFILE, 0600));
	MUST(write(f, "x", 1));
	close(f);
	close(in);
}

static void directories(void)
{
	in = MUST(inotify_init1(IN_NONBLOCK));
	WATCH("/tmp/d", IN_ALL_EVENTS);
	MUST(mkdir("/tmp/d/e", 0755));
	DRAIN("made");
	WATCH("/tmp/d/e", IN_ALL_EVENTS);
	int d = MUST(open("/tmp/d/e", O_RDONLY | O_DIRECTORY));
	DRAIN("opened");
	char b[1000];
	MUST(syscall(SYS_getdents64, d, b, sizeof b));
	DRAIN("listed");
	close(d);
	DRAIN("closed");
	MUST(chmod("/tmp/d/e", 0700));
	DRAIN("mode");
	close(MUST(creat("/tmp/d/e/x", 0600)));
	DRAIN("entry");
	MUST(rename("/tmp/d/e/x", "/tmp/d/e/y"));
	DRAIN("renamed");
	WATCH("/tmp/d/e/y", IN_ALL_EVENTS);
	MUST(rename("/tmp/d/e/y", "/tmp/d/z"));
	DRAIN("moved");
	close(MUST(creat("/tmp/d/w", 0600)));
	WATCH("/tmp/d/w", IN_ALL_EVENTS);
	DRAIN("another");
	MUST(rename("/tmp/d/z", "/tmp/d/w"));
	DRAIN("replaced");
	close(MUST(creat("/tmp/d/z", 0600)));
	DRAIN("third");
	MUST(syscall(SYS_renameat2, AT_FDCWD, "/tmp/d/z", AT_FDCWD, "/tmp/d/w", 2));
	DRAIN("exchanged");
	MUST(link("/tmp/d/w", "/tmp/d/v"));
	DRAIN("linked");
	TRY(rename("/tmp/d/w", "/tmp/d/v"));
	TRY(rename("/tmp/d/none", "/tmp/d/v"));
	DRAIN("not moved");
	MUST(unlink("/tmp/d/v")); MUST(unlink("/tmp/d/w")); MUST(unlink("/tmp/d/z"));
	DRAIN("all deleted");
	MUST(rename("/tmp/d/e", "/tmp/d/f"));
	DRAIN("a directory moved");
	MUST(rmdir("/tmp/d/f"));
	DRAIN("a directory deleted");
	MUST(mkdir("/tmp/d/e", 0755));
	WATCH("/tmp/d/e", IN_ALL_EVENTS);
	d = MUST(open("/tmp/d/e", O_RDONLY));
	MUST(rmdir("/tmp/d/e"));
	DRAIN("deleted, but open");
	close(d);
	DRAIN("gone");
	MUST(rmdir("/tmp/d"));
	DRAIN("all gone");
	TRY(inotify_rm_watch(in, 1));
	close(in);
}

static void limits(void)
{
	in = MUST(inotify_init1(IN_NONBLOCK));
	mkdir("/tmp/d", 0755);
	int knob = MUST(open("/proc/sys/fs/inotify/max_queued_events", O_RDWR));
	char old[32] = "";
	MUST(read(knob, old, 31));
	say("events %s", old);
	MUST(pwrite(knob, "4", 1, 0));
	int own = MUST(inotify_init1(IN_NONBLOCK));
	MUST(pwrite(knob, old, strlen(old), 0));
	int before = in;
	in = own;
	WATCH("/tmp/d", IN_CREATE);
	char path[64];
	for (int i = 0; i < 4; i++) {
		sprintf(path, "/tmp/d/%d", i);
		close(MUST(creat(path, 0600)));
	}
	DRAIN("four");
	struct pollfd p = { in, POLLIN | POLLOUT, 0 };
	TRY(poll(&p, 1, 0));
	close(in);
	in = before;
	WATCH("/tmp/d", IN_DELETE);
	for (int i = 0; i < 4; i++) {
		sprintf(path, "/tmp/d/%d", i);
		MUST(unlink(path));
	}
	TRY(poll(&(struct pollfd){ in, POLLIN | POLLOUT, 0 }, 1, 0));
	DRAIN("deleted");
	int n = 0, fds[300];
	while (n < 300 && (fds[n] = inotify_init()) >= 0)
		n++;
	say("instances %d, %s", n, strerrorname_np(errno));
	while (n)
		close(fds[--n]);
	close(knob);
	/* As many as may wait, and more. */
	for (int i = 0; i < 16390; i++) {
		sprintf(path, "/tmp/d/%d", i & 1);
		close(creat(path, 0600));
		unlink(path);
	}
	static char b[1 << 20];
	int count = 0, lost = 0;
	ssize_t r;
	while ((r = read(in, b, sizeof b)) > 0)
		for (ssize_t at = 0; at < r; count++) {
			struct inotify_event *e = (void *)(b + at);
			if (e->mask & IN_Q_OVERFLOW)
				say("lost: wd %d, mask %#x, cookie %u, len %u", e->wd, e->mask, e->cookie, e->len), lost++;
			at += sizeof *e + e->len;
		}
	say("%d events, %d of them of loss", count, lost);
	/* Two who look, and one of them only at some. */
	int other = MUST(inotify_init1(IN_NONBLOCK));
	TRY(inotify_add_watch(other, "/tmp/d", IN_CREATE));
	WATCH("/tmp/d", IN_ALL_EVENTS);
	close(MUST(creat("/tmp/d/x", 0600)));
	DRAIN("one");
	drain_(other, "other");
	close(other);
	unlink("/tmp/d/x");
	DRAIN("one alone");
	/* Waiting. */
	int set = MUST(epoll_create1(0));
	struct epoll_event e = { EPOLLIN | EPOLLET, { 0 } };
	MUST(epoll_ctl(set, EPOLL_CTL_ADD, in, &e));
	TRY(epoll_wait(set, &e, 1, 0));
	pid_t child = MUST(fork());
	if (child == 0) {
		until_in_call(getppid(), getppid(), SYS_epoll_wait);
		mkdir("/tmp/d/late", 0700);
		_exit(0);
	}
	TRY(epoll_wait(set, &e, 1, 600000));
	DRAIN("late");
	MUST(waitpid(child, 0, 0));
	MUST(fcntl(in, F_SETFL, 0));
	child = MUST(fork());
	if (child == 0) {
		until_in_call(getppid(), getppid(), SYS_read);
		rmdir("/tmp/d/late");
		_exit(0);
	}
	TRY(read(in, b, sizeof b));
	MUST(waitpid(child, 0, 0));
	MUST(fcntl(in, F_SETFL, O_NONBLOCK));
	close(set);
	/* A file system that goes. */
	MUST(mkdir("/tmp/d/m", 0755));
	DRAIN("made");
	MUST(mount("none", "/tmp/d/m", "tmpfs", 0, 0));
	WATCH("/tmp/d/m", IN_ALL_EVENTS);
	close(MUST(creat("/tmp/d/m/x", 0600)));
	WATCH("/tmp/d/m/x", IN_ALL_EVENTS);
	DRAIN("mounted");
	MUST(umount("/tmp/d/m"));
	DRAIN("unmounted");
	MUST(rmdir("/tmp/d/m"));
	MUST(rmdir("/tmp/d"));
	DRAIN("the end");
	close(in);
}

/* A program that is run is opened and read. */
static void programs(char *self)
{
	in = MUST(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
	int from = MUST(open(self, O_RDONLY)), to = MUST(open("/tmp/program", O_WRONLY | O_CREAT, 0755));
	struct stat st;
	MUST(fstat(from, &st));
	for (long left = st.st_size; left > 0;)
		left -= MUST(sendfile(to, from, 0, left));
	close(from);
	close(to);
	WATCH("/tmp/program", IN_ALL_EVENTS);
	pid_t child = MUST(fork());
	if (child == 0) {
		execl("/tmp/program", "program", "-", (char *)0);
		_exit(1);
	}
	int status;
	MUST(waitpid(child, &status, 0));
	say_status("the program", status);
	DRAIN("run");
	unlink("/tmp/program");
	DRAIN("gone");
	close(in);
}

/* Many watches that go together, and watches that end with their first event. */
static void many(void)
{
	char path[64];
	mkdir("/tmp/many", 0755);
	in = MUST(inotify_init1(IN_NONBLOCK));
	int other = MUST(inotify_init1(IN_NONBLOCK)), failed = 0;
	for (int i = 0; i < 3000; i++) {
		snprintf(path, sizeof path, "/tmp/many/%d", i);
		close(MUST(open(path, O_WRONLY | O_CREAT, 0600)));
		failed += inotify_add_watch(in, path, IN_OPEN | IN_DELETE_SELF) != i + 1;
	}
	say("%d failed", failed);
	TRY(inotify_add_watch(other, "/tmp/many/7", IN_OPEN | IN_ONESHOT));
	WATCH("/tmp/many/7", IN_OPEN | IN_ONESHOT);
	close(MUST(open("/tmp/many/7", O_RDONLY)));
	DRAIN("one");
	drain_(other, "other");
	TRY(inotify_rm_watch(other, 1));
	TRY(inotify_add_watch(other, "/tmp/many/7", IN_OPEN | IN_ONESHOT));
	WATCH("/tmp/many/7", IN_OPEN);
	close(MUST(open("/tmp/many/7", O_RDONLY)));
	DRAIN("one");
	drain_(other, "other");
	close(in);
	for (int i = 0; i < 3000; i++) {
		snprintf(path, sizeof path, "/tmp/many/%d", i);
		MUST(unlink(path));
	}
	drain_(other, "other");
	rmdir("/tmp/many");
	close(other);
}

/* Who watches a file while it is removed keeps nothing of it, and who replaces one tells of the right one. */
static void races(void)
{
	struct statfs before, after;
	in = MUST(inotify_init1(IN_NONBLOCK));
	mkdir("/tmp/races", 0755);
	MUST(mount("none", "/tmp/races", "tmpfs", 0, 0));
	MUST(statfs("/tmp/races", &before));
	pid_t remover = MUST(fork());
	if (remover == 0) {
		for (int i = 0; i < 3000; i++) {
			close(open("/tmp/races/f", O_WRONLY | O_CREAT, 0600));
			close(open("/tmp/races/g", O_WRONLY | O_CREAT, 0600));
			rename("/tmp/races/g", "/tmp/races/f");
			unlink("/tmp/races/f");
			mkdir("/tmp/races/d", 0700);
			rmdir("/tmp/races/d");
		}
		_exit(0);
	}
	while (waitpid(remover, 0, WNOHANG) == 0) {
		inotify_add_watch(in, "/tmp/races/f", IN_DELETE_SELF | IN_ATTRIB);
		inotify_add_watch(in, "/tmp/races/d", IN_DELETE_SELF);
	}
	MUST(statfs("/tmp/races", &after));
	say("%ld files are kept", (long)before.f_ffree - (long)after.f_ffree);
	close(in);
	MUST(umount("/tmp/races"));
	rmdir("/tmp/races");
}

/* What is watched of a file system that stands nowhere any more ends with the last use of it. */
static void detached(void)
{
	char path[64];
	mkdir("/tmp/detached", 0755);
	MUST(mount("none", "/tmp/detached", "tmpfs", 0, 0));
	int f = MUST(open("/tmp/detached/f", O_RDWR | O_CREAT, 0600));
	in = MUST(inotify_init1(IN_NONBLOCK));
	TRY(umount2("/tmp/detached", MNT_DETACH));
	snprintf(path, sizeof path, "/proc/self/fd/%d", f);
	TRY(inotify_add_watch(in, path, IN_MODIFY));
	TRY(write(f, "x", 1));
	DRAIN("detached");
	close(f);
	/* Two events are expected: the end of the file system, and of the watch. */
	for (int bytes = 0, looks = 0; bytes < 2 * (int)sizeof(struct inotify_event) && looks < 6000; looks++) {
		MUST(ioctl(in, FIONREAD, &bytes));
		sleep_ms(10);
	}
	DRAIN("not used");
	close(in);
	rmdir("/tmp/detached");
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return 0;
	errors();
	files();
	directories();
	limits();
	programs("/proc/self/exe");
	many();
	races();
	detached();
	return 0;
}
