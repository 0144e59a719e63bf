/* Files and directories of a tmpfs, and what the calls refuse. */
#include "say.h"
#include <dirent.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/uio.h>

static void say_file(const char *path)
{
	struct stat st;
	if (lstat(path, &st)) {
		say("%s: %s", path, strerrorname_np(errno));
		return;
	}
	/* a directory's size and link count are its file system's own matter */
	if (S_ISDIR(st.st_mode))
		say("%s: mode %o", path, st.st_mode);
	else
		say("%s: mode %o links %ld size %ld", path, st.st_mode, (long)st.st_nlink, (long)st.st_size);
}

static void list(const char *path)
{
	DIR *d = opendir(path);
	if (!d) {
		say("%s: %s", path, strerrorname_np(errno));
		return;
	}
	char names[100][64];
	int n = 0;
	struct dirent *e;
	while ((e = readdir(d)) && n < 100)
		snprintf(names[n++], 64, "%s/%d", e->d_name, e->d_type);
	closedir(d);
	qsort(names, n, 64, (int (*)(const void *, const void *))strcmp);
	for (int i = 0; i < n; i++)
		say("  %s has %s", path, names[i]);
}

static void contents(void)
{
	char b[100] = "";
	int fd;
	DO(fd = open("f", O_RDWR | O_CREAT | O_EXCL, 0644));
	TRY(open("f", O_RDWR | O_CREAT | O_EXCL, 0644));
	TRY(write(fd, "0123456789", 10));
	TRY(lseek(fd, 3, SEEK_SET));
	TRY(read(fd, b, 4));
	say("%s", b);
	TRY(lseek(fd, -2, SEEK_CUR));
	TRY(lseek(fd, -2, SEEK_END));
	TRY(lseek(fd, -20, SEEK_END));
	TRY(lseek(fd, 0, 77));
	TRY(lseek(fd, 20, SEEK_SET));
	TRY(read(fd, b, 4));
	TRY(write(fd, "after a hole", 12));
	TRY(pread(fd, b, 30, 8));
	say("%d %d %d %.5s", b[0], b[1], b[2], b + 12);
	TRY(pwrite(fd, "XY", 2, 1));
	TRY(pread(fd, b, 5, 0));
	say("%.5s", b);
	TRY(pread(fd, b, 5, -1));
	TRY(pread(fd, b, 5, 1000));
	struct iovec v[2] = { { "one", 3 }, { "two", 3 } };
	TRY(pwritev(fd, v, 2, 0));
	char x[2], y[3];
	struct iovec r[2] = { { x, 2 }, { y, 3 } };
	TRY(preadv(fd, r, 2, 0));
	say("%.2s %.3s", x, y);
	TRY(ftruncate(fd, 5));
	say_file("f");
	TRY(ftruncate(fd, 8));
	TRY(pread(fd, b, 10, 0));
	say("%.5s %d%d%d", b, b[5], b[6], b[7]);
	TRY(ftruncate(fd, -1));
	TRY(truncate("f", 2));
	say_file("f");
	TRY(truncate("none", 2));
	TRY(fsync(fd) | fdatasync(fd));
	close(fd);
	TRY(read(fd, b, 1));
	DO(fd = open("f", O_RDONLY));
	TRY(write(fd, "x", 1));
	TRY(ftruncate(fd, 0));
	TRY(read(fd, (void *)8, 1));
	TRY(read(fd, b, 0));
	close(fd);
	DO(fd = open("f", O_WRONLY | O_APPEND));
	TRY(write(fd, "abc", 3));
	TRY(lseek(fd, 0, SEEK_CUR));
	TRY(lseek(fd, 0, SEEK_SET));
	TRY(write(fd, "d", 1));
	say_file("f");
	TRY(read(fd, b, 1));
	close(fd);
	DO(fd = open("f", O_WRONLY | O_TRUNC));
	say_file("f");
	TRY(write(fd, (void *)8, 5));
	TRY(write(fd, "x", 0));
	close(fd);

	/* holes */
	DO(fd = open("sparse", O_RDWR | O_CREAT | O_TRUNC, 0600));
	TRY(ftruncate(fd, 1l << 40));
	TRY(pwrite(fd, "end", 3, (1l << 40) - 3));
	TRY(pwrite(fd, "middle", 6, 1l << 30));
	struct stat st;
	fstat(fd, &st);
	say("size %ld blocks %ld", (long)st.st_size, (long)st.st_blocks);
	TRY(pread(fd, b, 6, 1l << 30));
	say("%.6s", b);
	TRY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1l << 30, 4096));
	fstat(fd, &st);
	say("blocks %ld", (long)st.st_blocks);
	TRY(pread(fd, b, 6, 1l << 30));
	say("%d", b[0]);
	TRY(fallocate(fd, 0x80, 0, 10));
	TRY(fallocate(fd, 0, -1, 10));
	TRY(fallocate(fd, 0, 0, 0));
	TRY(ftruncate(fd, 0));
	TRY(posix_fallocate(fd, 0, 100000));
	fstat(fd, &st);
	say("size %ld", (long)st.st_size);
	TRY(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	close(fd);
	unlink("sparse");

	/* one file, two descriptions; and copies between files */
	int a, c;
	DO(a = open("a", O_RDWR | O_CREAT | O_TRUNC, 0600));
	for (int i = 0; i < 1000; i++)
		dprintf(a, "line %d\n", i);
	DO(c = open("c", O_RDWR | O_CREAT | O_TRUNC, 0600));
	lseek(a, 0, SEEK_SET);
	TRY(sendfile(c, a, NULL, 5000));
	TRY(lseek(a, 0, SEEK_CUR));
	off_t off = 10;
	TRY(sendfile(c, a, &off, 100));
	say("offset %ld", (long)off);
	TRY(lseek(c, 0, SEEK_CUR));
	loff_t from = 0, to = 0;
	TRY(copy_file_range(a, &from, c, &to, 3000, 0));
	say("%ld %ld", (long)from, (long)to);
	TRY(sendfile(c, a, NULL, 100000));
	say_file("c");
	TRY(flock(a, LOCK_EX | LOCK_NB));
	int other = MUST(open("a", O_RDWR));
	TRY(flock(a, LOCK_UN));
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	TRY(fcntl(a, F_SETLK, &lock));
	close(other);
	unlink("a");
	unlink("c");
	TRY(pread(a, b, 6, 0));
	say("%.6s of a file without a name", b);
	fstat(a, &st);
	say("links %ld", (long)st.st_nlink);
	TRY(linkat(AT_FDCWD, "none", AT_FDCWD, "x", 0));
}

static void names(void)
{
	TRY(mkdir("d", 0755));
	TRY(mkdir("d", 0755));
	TRY(mkdir("no/d", 0755));
	TRY(mkdir("f/d", 0755));
	TRY(mkdir("d/e", 0700));
	TRY(mkdir("d/e/", 0700));
	TRY(rmdir("d"));
	TRY(rmdir("f"));
	TRY(rmdir("d/e/."));
	TRY(unlink("d"));
	TRY(unlink("none"));
	TRY(open("d", O_WRONLY));
	TRY(open("d", O_RDWR | O_CREAT, 0600));
	TRY(open("f", O_RDONLY | O_DIRECTORY));
	TRY(open("f/", O_RDONLY));
	TRY(open("", O_RDONLY));
	TRY(open((void *)8, O_RDONLY));
	TRY(open("none", O_RDONLY));
	TRY(link("f", "d/hard"));
	TRY(link("f", "d/hard"));
	TRY(link("d", "hard-directory"));
	say_file("f");
	TRY(unlink("f"));
	say_file("d/hard");
	TRY(symlink("hard", "d/soft"));
	TRY(symlink("/nowhere", "d/dangling"));
	TRY(symlink("loop", "loop"));
	TRY(symlink("", "empty"));
	TRY(symlink("x", "d/soft"));
	char b[PATH_MAX + 100];
	TRY(readlink("d/soft", b, 100));
	say("%.4s", b);
	TRY(readlink("d/soft", b, 2));
	TRY(readlink("d/hard", b, 100));
	TRY(open("d/dangling", O_RDONLY));
	TRY(open("loop", O_RDONLY));
	TRY(open("d/soft", O_RDONLY | O_NOFOLLOW));
	int fd;
	DO(fd = open("d/soft", O_RDONLY));
	close(fd);
	say_file("d/soft");
	TRY(access("d/soft", R_OK | W_OK));
	TRY(access("d/hard", X_OK));
	TRY(access("d/dangling", F_OK));
	TRY(access("d", X_OK));
	TRY(access("d", 77));
	list("d");

	/* renaming */
	TRY(rename("d/hard", "d/new"));
	TRY(rename("none", "x"));
	TRY(rename("d", "d/e/inside"));
	int t = MUST(open("target", O_CREAT | O_WRONLY, 0600));
	MUST(write(t, "old", 3));
	TRY(rename("d/new", "target"));
	say_file("target");
	struct stat st;
	fstat(t, &st);
	say("links %ld", (long)st.st_nlink);
	TRY(rename("target", "d"));
	TRY(rename("d/e", "target"));
	TRY(mkdir("d2", 0755));
	TRY(rename("d/e", "d2"));
	list("d");
	TRY(rename("d2", "d"));
	TRY(renameat2(AT_FDCWD, "target", AT_FDCWD, "d2", 1));
	TRY(rename("target", "target"));
	TRY(rename("d/soft", "soft"));
	TRY(readlink("soft", b, 100));
	memset(b, 'n', 300);
	b[256] = 0;
	TRY(open(b, O_CREAT | O_WRONLY, 0600));
	b[255] = 0;
	TRY(open(b, O_CREAT | O_EXCL, 0600) > 2);
	TRY(unlink(b));
	memset(b, '/', PATH_MAX + 10);
	b[PATH_MAX + 10] = 0;
	TRY(open(b, O_RDONLY));

	/* at a directory */
	int dir;
	DO(dir = open("d", O_RDONLY | O_DIRECTORY));
	DO(fd = openat(dir, "at", O_CREAT | O_WRONLY, 0640));
	TRY(openat(fd, "x", O_RDONLY));
	TRY(openat(99, "x", O_RDONLY));
	TRY(fstatat(dir, "at", &st, 0));
	TRY(fstatat(fd, "", &st, AT_EMPTY_PATH));
	TRY(mkdirat(dir, "sub", 0755));
	TRY(unlinkat(dir, "sub", 0));
	TRY(unlinkat(dir, "sub", AT_REMOVEDIR));
	TRY(renameat(dir, "at", AT_FDCWD, "moved"));
	TRY(faccessat(dir, "at", F_OK, 0));
	TRY(fchdir(dir));
	TRY(access("dangling", F_OK));
	TRY(symlinkat("../moved", dir, "up"));
	TRY(access("up", R_OK));
	TRY(fchdir(fd));
	TRY(chdir(".."));
	TRY(chdir("moved"));
	TRY(chdir("none"));
	TRY(chdir("d/../d/./"));
	HOLDS(getcwd(b, sizeof b) != NULL && !strcmp(b + strlen(b) - 2, "/d"));
	HOLDS(getcwd(b, 1) == NULL && errno == ERANGE);
	TRY(chdir(".."));
	TRY(mkdir("gone", 0755));
	TRY(chdir("gone"));
	TRY(rmdir("../gone"));
	HOLDS(getcwd(b, sizeof b) == NULL && errno == ENOENT);
	TRY(open("x", O_CREAT | O_WRONLY, 0600));
	list(".");
	TRY(chdir(".."));
}

static void attributes(void)
{
	TRY(chmod("moved", 0604));
	say_file("moved");
	TRY(chmod("moved", 06755));
	say_file("moved");
	TRY(fchmodat(AT_FDCWD, "none", 0600, 0));
	umask(027);
	int fd = MUST(open("masked", O_CREAT | O_WRONLY, 0666));
	say_file("masked");
	TRY(fchmod(fd, 0666));
	say_file("masked");
	HOLDS(umask(022) == 027);
	struct timespec times[2] = { { 1000000, 5 }, { 2000000, 6 } };
	TRY(futimens(fd, times));
	struct stat st;
	fstat(fd, &st);
	say("accessed %ld.%ld modified %ld.%ld", (long)st.st_atim.tv_sec, st.st_atim.tv_nsec, (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	times[0].tv_nsec = UTIME_OMIT;
	times[1].tv_nsec = UTIME_NOW;
	time_t before = time(NULL);
	TRY(utimensat(AT_FDCWD, "masked", times, 0));
	fstat(fd, &st);
	HOLDS(st.st_atim.tv_sec == 1000000 && st.st_mtim.tv_sec >= before - 1 && st.st_mtim.tv_sec <= time(NULL) + 1);
	times[0].tv_nsec = -5;
	TRY(utimensat(AT_FDCWD, "masked", times, 0));
	TRY(chown("masked", 0, 0));
	TRY(fchown(fd, -1, -1));
	struct statx sx;
	TRY(statx(AT_FDCWD, "masked", 0, STATX_BASIC_STATS, &sx));
	say("mode %o size %llu, mask has %x", sx.stx_mode, sx.stx_size, sx.stx_mask & STATX_BASIC_STATS);
	TRY(statx(AT_FDCWD, "none", 0, STATX_BASIC_STATS, &sx));
	TRY(stat("masked", (void *)8));
	struct statfs fs;
	TRY(statfs("/proc", &fs));
	say("%lx", (long)fs.f_type);
	TRY(statfs("none", &fs));
	/* flags of descriptors */
	TRY(fcntl(fd, F_GETFD));
	TRY(fcntl(fd, F_SETFD, FD_CLOEXEC));
	TRY(fcntl(fd, F_GETFD));
	TRY(fcntl(fd, F_GETFL) & O_ACCMODE);
	TRY(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
	TRY(fcntl(fd, F_GETFL) & (O_APPEND | O_NONBLOCK));
	HOLDS(fcntl(fd, F_DUPFD, 70) == 70);
	TRY(fcntl(70, F_GETFD));
	TRY(fcntl(fd, F_DUPFD, 99999999));
	TRY(fcntl(98, F_GETFD));
	TRY(fcntl(fd, 9999));
	TRY(ioctl(fd, 0x5401, &st));
	TRY(isatty(fd));
	TRY(close_range(60, 80, 0));
	TRY(fcntl(70, F_GETFD));
	int full = MUST(open("/dev/full", O_RDWR)), null = MUST(open("/dev/null", O_RDWR)), zero = MUST(open("/dev/zero", O_RDWR));
	char b[10] = "123456789";
	TRY(write(full, b, 5));
	TRY(read(full, b, 5));
	TRY(write(null, b, 5));
	TRY(read(null, b, 5));
	TRY(write(zero, b, 5));
	TRY(read(zero, b, 9));
	say("%d%d", b[0], b[8]);
	fstat(null, &st);
	say("null: mode %o device %lx", st.st_mode & S_IFMT, (long)st.st_rdev);
	TRY(mknod("node", S_IFIFO | 0600, 0));
	say_file("node");
	TRY(mknod("plain", S_IFREG | 0600, 0));
	say_file("plain");
	TRY(open("deleted", O_RDWR | O_TMPFILE, 0600) == -1 && errno == ENOENT);
}

static void many(void)
{
	TRY(mkdir("many", 0755));
	char name[64];
	for (int i = 0; i < 2000; i++) {
		sprintf(name, "many/file-with-a-rather-long-name-%d", i);
		close(MUST(open(name, O_CREAT | O_WRONLY, 0600)));
	}
	DIR *d = opendir("many");
	int n = 0;
	struct dirent *e;
	while ((e = readdir(d)))
		n++;
	say("%d entries", n);
	rewinddir(d);
	n = 0;
	while ((e = readdir(d)))
		if (e->d_name[0] != '.') {
			sprintf(name, "many/%s", e->d_name);
			n += unlink(name) == 0;
		}
	say("%d removed while listing", n);
	closedir(d);
	TRY(rmdir("many"));
	static int fds[1100];
	for (n = 0; n < 1100 && (fds[n] = open("/dev/null", O_RDONLY)) >= 0; n++)
		;
	say("descriptors end: %s", n < 1100 ? strerrorname_np(errno) : "no");
	while (n--)
		close(fds[n]);
}

int main(void)
{
	struct { long soft, hard; } limit = { 512, 4096 };
	TRY(syscall(SYS_prlimit64, 0, 7, &limit, NULL));
	char dir[] = "files-XXXXXX";
	HOLDS(mkdtemp(dir) != NULL);
	MUST(chdir(dir));
	contents();
	names();
	attributes();
	many();
	list(".");
	chdir("..");
	char command[100];
	snprintf(command, 100, "rm -r %s", dir);
	TRY(system(command));
	return 0;
}
