/* Works in an empty folder that lasts: what it shows is the same wherever the folder is, and so is what it leaves there.
 * Argument: the folder. */
#include "say.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>

static const char *word(long result)
{
	return result < 0 ? strerrorname_np(errno) : "done";
}

static void show(const char *path)
{
	struct stat status;
	char target[64] = "";
	if (lstat(path, &status) < 0) {
		say("%s: %s", path, strerrorname_np(errno));
		return;
	}
	if (S_ISLNK(status.st_mode))
		readlink(path, target, sizeof target - 1);
	say("%s: %o links %d size %ld mtime %ld %s", path, status.st_mode,
	    S_ISDIR(status.st_mode) ? 0 : (int)status.st_nlink, S_ISDIR(status.st_mode) ? 0 : (long)status.st_size,
	    status.st_mtime < 1000000 ? (long)status.st_mtime : -1L, target);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	say("put %s: %s", path, word(fd < 0 ? fd : write(fd, text, strlen(text))));
	if (fd >= 0)
		close(fd);
}

static void get(const char *path)
{
	char text[128] = "";
	int fd = open(path, O_RDONLY);
	long len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	say("get %s: %s %ld %s", path, word(len), len, len > 0 ? text : "");
	if (fd >= 0)
		close(fd);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(const char *path)
{
	static char *names[4096];
	DIR *folder = opendir(path);
	struct dirent *entry;
	int count = 0;
	unsigned sum = 0;
	say("list %s: %s", path, folder ? "open" : strerrorname_np(errno));
	if (!folder)
		return;
	while ((entry = readdir(folder)) && count < 4096)
		names[count++] = strdup(entry->d_name);
	closedir(folder);
	qsort(names, count, sizeof *names, by_name);
	for (int i = 0; i < count; i++) {
		for (char *c = names[i]; *c; c++)
			sum = sum * 31 + *c;
		if (count < 20)
			say("  %s", names[i]);
		free(names[i]);
	}
	say("  %d names, %u", count, sum);
}

static void names(void)
{
	umask(022);
	put("file", "some text");
	put("file", "other");
	say("again: %s", word(open("file", O_CREAT | O_EXCL | O_RDWR, 0600)));
	say("mkdir: %s", word(mkdir("dir", 0775)));
	say("mkdir: %s", word(mkdir("dir", 0775)));
	say("symlink: %s", word(symlink("../file", "dir/link")));
	say("link: %s", word(link("file", "dir/hard")));
	say("link: %s", word(link("dir", "dir2")));
	show("file");
	show("dir");
	show("dir/link");
	get("dir/link");
	list("dir");
	put("dir/hard", "by another name");
	get("file");
	say("rename: %s", word(rename("file", "dir/moved")));
	show("file");
	get("dir/moved");
	put("second", "2");
	say("replace: %s", word(rename("second", "dir/moved")));
	get("dir/moved");
	get("dir/hard");
	say("exchange: %s", word(renameat2(AT_FDCWD, "dir/moved", AT_FDCWD, "dir/hard", RENAME_EXCHANGE)));
	get("dir/moved");
	say("keep: %s", word(renameat2(AT_FDCWD, "dir/moved", AT_FDCWD, "dir/hard", RENAME_NOREPLACE)));
	say("into itself: %s", word(rename("dir", "dir/inner")));
	say("over a file: %s", word(rename("dir", "dir/hard")));
	say("rmdir: %s", word(rmdir("dir")));
	say("unlink a folder: %s", word(unlink("dir")));
	say("rmdir a file: %s", word(rmdir("dir/hard")));
	say("unlink: %s", word(unlink("dir/absent")));
	say("through a file: %s", word(open("dir/hard/x", O_RDONLY)));
	say("a folder for writing: %s", word(open("dir", O_RDWR)));
	say("circle: %s", word(symlink("circle", "circle")));
	say("circle: %s", word(open("circle", O_RDONLY)));
	say("dangling: %s", word(symlink("made", "dangling")));
	put("dangling", "behind a link");
	get("made");
	char longest[300];
	memset(longest, 'n', sizeof longest);
	longest[255] = 0;
	put(longest, "long");
	say("unlink: %s", word(unlink(longest)));
	longest[255] = 'n';
	longest[256] = 0;
	say("too long: %s", word(open(longest, O_CREAT | O_RDWR, 0600)));
}

static void places(void)
{
	char path[4096], *last;
	say("chdir: %s", word(mkdir("a", 0755) | mkdir("a/b", 0755) | chdir("a/b")));
	last = strrchr(getcwd(path, sizeof path), '/');
	say("here: %s", last);
	say("moved: %s", word(rename("../b", "../c")));
	last = strrchr(getcwd(path, sizeof path), '/');
	say("here: %s", last);
	put("inside", "inside");
	get("../c/inside");
	say("chdir: %s", word(chdir("../..")));
	get("a/c/inside");
}

static void attributes(void)
{
	struct timespec times[2] = { { 1234, 5 }, { 5678, 9 } };
	struct stat status;
	put("modes", "x");
	say("chmod: %s", word(chmod("modes", 0604)));
	show("modes");
	int fd = open("modes", O_RDWR);
	say("fchmod: %s", word(fchmod(fd, 0640)));
	say("utimes: %s", word(utimensat(AT_FDCWD, "modes", times, 0)));
	stat("modes", &status);
	say("times: %ld.%ld %ld.%ld", status.st_atim.tv_sec, status.st_atim.tv_nsec, status.st_mtim.tv_sec,
	    status.st_mtim.tv_nsec);
	times[0].tv_nsec = UTIME_OMIT;
	times[1].tv_sec = 42;
	say("futimens: %s", word(futimens(fd, times)));
	show("modes");
	say("chown: %s", word(fchown(fd, geteuid(), getegid())));
	say("truncate: %s", word(truncate("modes", 10000)));
	show("modes");
	say("ftruncate: %s", word(ftruncate(fd, 3)));
	say("lseek: %ld", (long)lseek(fd, 0, SEEK_END));
	say("fallocate: %s", word(fallocate(fd, 0, 0, 8000)));
	say("lseek: %ld", (long)lseek(fd, 0, SEEK_END));
	say("sync: %s %s", word(fsync(fd)), word(fdatasync(fd)));
	close(fd);
	umask(0);
	put("open", "x");
	show("open");
	umask(077);
	put("closed", "x");
	show("closed");
	umask(022);
}

static void bytes(void)
{
	static unsigned char out[600000], in[600000];
	for (unsigned i = 0; i < sizeof out; i++)
		out[i] = i * 2654435761u >> 13;
	int fd = open("bytes", O_RDWR | O_CREAT, 0644);
	say("write: %ld", (long)write(fd, out, sizeof out));
	say("pread: %ld %d", (long)pread(fd, in, sizeof in, 0), memcmp(in, out, sizeof out));
	for (int i = 1; i < 40; i++) {
		unsigned at = i * 14983, len = i * 337;
		for (unsigned j = 0; j < len; j++)
			out[at + j] ^= i;
		if (pwrite(fd, out + at, len, at) != (long)len)
			say("pwrite %d: %s", i, strerrorname_np(errno));
	}
	memset(in, 0, sizeof in);
	say("pread: %ld %d", (long)pread(fd, in, sizeof in, 0), memcmp(in, out, sizeof out));
	say("at the end: %ld", (long)pread(fd, in, 10, sizeof out));
	int end = open("bytes", O_WRONLY | O_APPEND);
	say("append: %ld", (long)write(end, "end", 3) + (long)pwrite(end, "END", 3, 5));
	say("size: %ld", (long)lseek(fd, 0, SEEK_END));
	pread(fd, in, 6, sizeof out);
	in[6] = 0;
	say("end: %s", (char *)in);
	say("only for writing: %s", word(read(end, in, 1)));
	struct iovec parts[2] = { { "one", 3 }, { "two", 3 } };
	say("pwritev: %ld", (long)pwritev(fd, parts, 2, 4093));
	pread(fd, in, 6, 4093);
	in[6] = 0;
	say("pread: %s", (char *)in);
	say("a bad address: %s", word(pwrite(fd, (void *)8, 10, 0)));
	say("behind the end: %ld", (long)pwrite(fd, "far", 3, 700000));
	say("hole: %ld %d", (long)pread(fd, in, 10, 650000), in[0]);
	close(end);
	close(fd);
	fd = open("gone", O_RDWR | O_CREAT, 0644);
	write(fd, "still", 5);
	unlink("gone");
	say("unlinked: %ld", (long)pread(fd, in, 10, 0));
	struct stat status;
	fstat(fd, &status);
	say("links %d size %ld", (int)status.st_nlink, (long)status.st_size);
	close(fd);
}

static void mapped(void)
{
	int fd = open("mapped", O_RDWR | O_CREAT, 0644);
	ftruncate(fd, 10000);
	char *shared = mmap(0, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), text[32] = "";
	char *private = mmap(0, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	say("mmap: %s", word(shared == MAP_FAILED || private == MAP_FAILED ? -1 : 0));
	strcpy(shared + 4094, "across pages");
	pread(fd, text, 12, 4094);
	say("read what was stored: %s", text);
	pwrite(fd, "written", 7, 8192);
	say("see what was written: %.7s, %.7s", shared + 8192, private + 8192);
	strcpy(private, "mine");
	say("shared has %d", shared[0]);
	say("msync: %s", word(msync(shared, 12288, MS_SYNC)));
	strcpy(shared + 9000, "after msync");
	if (!fork()) {
		strcpy(shared + 100, "of a child");
		_exit(0);
	}
	wait(0);
	say("child: %s", shared + 100);
	/* A write whose source is a mapping of the same file. */
	say("onto itself: %ld", (long)pwrite(fd, shared + 4094, 12, 200));
	say("itself: %.12s", shared + 200);
	say("cut: %s", word(ftruncate(fd, 9005)));
	say("grow: %s", word(ftruncate(fd, 10000)));
	say("behind the cut: %d, before: %.5s", shared[9006], shared + 9000);
	munmap(shared, 12288);
	close(fd);
	munmap(private, 12288);
	fd = open("mapped", O_RDONLY);
	say("map for writing what is open for reading: %s",
	    word(mmap(0, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0));
	close(fd);
}

static void locked(void)
{
	int one = open("lock", O_RDWR | O_CREAT, 0644), two = open("lock", O_RDWR);
	say("flock: %s", word(flock(one, LOCK_EX)));
	say("flock: %s", word(flock(two, LOCK_EX | LOCK_NB)));
	struct flock whole = { .l_type = F_WRLCK };
	say("fcntl: %s", word(fcntl(one, F_SETLK, &whole)));
	if (!fork()) {
		say("child: %s", word(fcntl(two, F_SETLK, &whole)));
		_exit(0);
	}
	wait(0);
}

static void many(void)
{
	char name[64];
	mkdir("many", 0755);
	for (int i = 0; i < 1200; i++) {
		snprintf(name, sizeof name, "many/%d-%d", i, i * i);
		close(open(name, O_CREAT | O_WRONLY, 0644));
	}
	list("many");
	DIR *folder = opendir("many");
	struct dirent *entry;
	int removed = 0;
	while ((entry = readdir(folder)))
		removed += !unlinkat(dirfd(folder), entry->d_name, 0);
	closedir(folder);
	say("removed %d", removed);
	say("rmdir: %s", word(rmdir("many")));
}

int main(int argc, char **argv)
{
	if (argc < 2 || chdir(argv[1]) < 0)
		return 1;
	names();
	places();
	attributes();
	bytes();
	mapped();
	locked();
	many();
	list(".");
	return 0;
}
