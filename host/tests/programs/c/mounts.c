/* tmpfs mounted, filled, changed, used and unmounted; needs to be root. `mounts FOLDER`. Says only what
   does not hold, and how much was looked at. */
#include "say.h"
#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

static int looked, wrong;

#define SO(what) do { looked++; errno = 0; if (!(what)) { wrong++; \
	say("line %d: %s does not hold (%s)", __LINE__, #what, strerrorname_np(errno)); } } while (0)
#define FAILS(call, error) do { looked++; errno = 0; long r_ = (long)(call); int e_ = errno; \
	if (r_ != -1 || e_ != (error)) { wrong++; \
		say("line %d: %s = %ld %s instead of %s", __LINE__, #call, r_, strerrorname_np(e_), strerrorname_np(error)); } } while (0)
#define WORKS(call) SO((long)(call) != -1)

static char base[256], path[4096], text[65536];

/* A path below the mount point; good until the eighth call after it. */
static const char *in(const char *name)
{
	static char paths[8][512];
	static int n;
	char *to = paths[n++ % 8];
	snprintf(to, 512, "%s%s%s", base, *name ? "/" : "", name);
	return to;
}

static int fresh(const char *options, unsigned long flags)
{
	return mount("none", base, "tmpfs", flags, options);
}

static int put(const char *name, size_t bytes)
{
	static char block[PAGE];
	int file = open(in(name), O_WRONLY | O_CREAT, 0644);
	if (file < 0)
		return -1;
	size_t done = 0;
	ssize_t now = 0;
	while (done < bytes && (now = write(file, block, bytes - done < PAGE ? bytes - done : PAGE)) > 0)
		done += now;
	int error = errno;
	close(file);
	errno = error;
	return now < 0 ? -1 : 0;
}

/* The line of a table in /proc that names the mount point, the last one; 0 if there is none. */
static char *line_of(const char *table)
{
	static char found[4096];
	FILE *file = fopen(table, "r");
	char word[512];
	*found = 0;
	snprintf(word, sizeof word, " %s ", base);
	while (fgets(path, sizeof path, file))
		if (strstr(path, word))
			strcpy(found, path);
	fclose(file);
	return *found ? found : 0;
}

static struct statfs *room(void)
{
	static struct statfs all;
	if (statfs(base, &all))
		memset(&all, 0, sizeof all);
	return &all;
}

static void arguments(void)
{
	FAILS(mount("none", base, "no_such_type", 0, 0), ENODEV);
	FAILS(mount("none", base, 0, 0, 0), EINVAL);
	FAILS(mount("none", in("none"), "tmpfs", 0, 0), ENOENT);
	FAILS(mount("none", in("none"), "no_such_type", 0, 0), ENOENT);
	FAILS(mount("none", 0, "tmpfs", 0, 0), EFAULT);
	FAILS(mount((void *)1, base, "tmpfs", 0, 0), EFAULT);
	FAILS(mount("none", base, (void *)1, 0, 0), EFAULT);
	FAILS(mount("none", base, "tmpfs", 0, (void *)1), EFAULT);
	FAILS(mount("none", "", "tmpfs", 0, 0), ENOENT);
	FAILS(mount("none", "/proc/version/x", "tmpfs", 0, 0), ENOTDIR);
	FAILS(mount("none", "/proc/version", "tmpfs", 0, 0), ENOTDIR);
	WORKS(put("file", 10));
	FAILS(mount("none", in("file"), "tmpfs", 0, 0), ENOTDIR);
	WORKS(unlink(in("file")));
	memset(text, 'x', sizeof text);
	FAILS(mount("none", text, "tmpfs", 0, 0), ENAMETOOLONG);
	text[sizeof text - 1] = 0;
	FAILS(mount(text, base, "tmpfs", 0, 0), EINVAL);
	FAILS(mount("none", base, text, 0, 0), EINVAL);
	static const char *bad[] = { "bad", "size", "size=", "size=x", "size=1mm", "size=-1", "mode=9", "uid=x",
				     "nr_inodes=x", "size=1m,bad=2", "mode=", "gid=-1", "huge=maybe" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		FAILS(fresh(bad[i], 0), EINVAL);
	FAILS(umount(base), EINVAL);
	FAILS(umount(in("none")), ENOENT);
	FAILS(umount2(base, 0x100), EINVAL);
	FAILS(umount2(in("none"), 0x100), EINVAL);
	FAILS(umount2(base, MNT_EXPIRE | MNT_FORCE), EINVAL);
	FAILS(umount((void *)1), EFAULT);
	FAILS(umount2(base, MNT_DETACH), EINVAL);
	FAILS(mount(0, base, 0, MS_REMOUNT, 0), EINVAL);
	FAILS(mount(0, base, 0, MS_PRIVATE, 0), EINVAL);
	WORKS(mount(0, "/", 0, MS_PRIVATE | MS_REC, 0));
	SO(!line_of("/proc/mounts"));
}

/* The text of a symbolic link takes a page if it is long. */
static void links(void)
{
	struct stat st;
	char target[129] = "";
	memset(target, 'x', 128);
	WORKS(fresh("size=12k", 0));
	WORKS(symlink(target, in("a")));
	WORKS(lstat(in("a"), &st));
	SO(st.st_size == 128 && st.st_blocks == 8 && room()->f_bfree == 2);
	WORKS(symlink(target + 1, in("short")));
	WORKS(lstat(in("short"), &st));
	SO(st.st_size == 127 && st.st_blocks == 0 && room()->f_bfree == 2);
	WORKS(symlink(target, in("b")));
	WORKS(symlink(target, in("c")));
	FAILS(symlink(target, in("d")), ENOSPC);
	FAILS(symlink(target, in("c")), EEXIST);
	FAILS(put("file", 1), ENOSPC);
	WORKS(symlink("x", in("d")));
	WORKS(unlink(in("b")));
	SO(room()->f_bfree == 1);
	WORKS(rename(in("a"), in("c")));
	SO(room()->f_bfree == 2);
	WORKS(umount(base));
}

static void sizes(void)
{
	WORKS(fresh("size=1m,nr_inodes=10,mode=751,uid=3,gid=0x10", 0));
	struct stat st;
	WORKS(stat(base, &st));
	SO((st.st_mode & 07777) == 0751 && st.st_uid == 3 && st.st_gid == 16 && S_ISDIR(st.st_mode));
	dev_t device = st.st_dev;
	WORKS(put("a", 10));
	WORKS(stat(in("a"), &st));
	SO(st.st_dev == device);
	WORKS(lstat(in(".."), &st));
	SO(st.st_dev != device);
	SO(room()->f_type == 0x01021994 && room()->f_bsize == PAGE && room()->f_blocks == 256);
	SO(room()->f_bfree == 255 && room()->f_bavail == 255 && room()->f_files == 10 && room()->f_ffree == 8);
	SO(strstr(line_of("/proc/mounts"), " tmpfs rw,relatime,size=1024k,nr_inodes=10,mode=751,uid=3,gid=16"));
	SO(strstr(line_of("/proc/self/mountinfo"), " rw,relatime "));
	SO(strstr(line_of("/proc/self/mountinfo"), " - tmpfs none rw,size=1024k,nr_inodes=10"));
	WORKS(unlink(in("a")));
	/* Full of bytes. */
	FAILS(put("big", 2 << 20), ENOSPC);
	WORKS(stat(in("big"), &st));
	SO(st.st_size == 1 << 20 && room()->f_bfree == 0);
	WORKS(put("empty", 0));
	FAILS(put("one", 1), ENOSPC);
	int file = open(in("empty"), O_RDWR);
	FAILS(fallocate(file, 0, 0, PAGE), ENOSPC);
	WORKS(ftruncate(file, 2 * PAGE));
	char *at = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	SO(at != MAP_FAILED);
	pid_t child = fork();
	if (!child) {
		at[0] = 1;
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	SO(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	WORKS(truncate(in("big"), PAGE));
	at[0] = 1;
	at[PAGE] = 1;
	SO(room()->f_bfree == 253);
	munmap(at, 2 * PAGE);
	close(file);
	/* Full of files. */
	int made = 0, error = 0;
	for (; made < 20; made++) {
		char name[8];
		snprintf(name, sizeof name, "n%d", made);
		if (mkdir(in(name), 0700)) {
			error = errno;
			break;
		}
	}
	SO(error == ENOSPC && made == 6 && room()->f_ffree == 0);
	FAILS(symlink("x", in("link")), ENOSPC);
	/* Changed while it is used. */
	FAILS(mount(0, base, 0, MS_REMOUNT, "size=8k"), EINVAL);
	FAILS(mount(0, base, 0, MS_REMOUNT, "nr_inodes=3"), EINVAL);
	FAILS(mount(0, base, 0, MS_REMOUNT, "nope=3"), EINVAL);
	SO(room()->f_blocks == 256 && room()->f_files == 10);
	WORKS(mount(0, base, 0, MS_REMOUNT, "size=4m,nr_inodes=1k"));
	SO(room()->f_blocks == 1024 && room()->f_files == 1024);
	WORKS(put("big", 2 << 20));
	FAILS(mount(0, in("n0"), 0, MS_REMOUNT, "size=5m"), EINVAL);
	FAILS(umount(in("n0")), EINVAL);
	WORKS(umount(base));
	SO(room()->f_blocks != 1024 && !line_of("/proc/mounts") && access(in("big"), F_OK));
	/* Without limits, and with those of the machine. */
	WORKS(fresh("size=0,nr_inodes=0", 0));
	SO(room()->f_blocks == 0 && room()->f_files == 0);
	WORKS(put("big", 2 << 20));
	FAILS(mount(0, base, 0, MS_REMOUNT, "size=8m"), EINVAL);
	WORKS(umount(base));
	WORKS(fresh(0, 0));
	unsigned long usual = room()->f_blocks;
	WORKS(stat(base, &st));
	SO((st.st_mode & 07777) == 01777);
	WORKS(umount(base));
	WORKS(fresh("size=50%", 0));
	SO(room()->f_blocks == usual || room()->f_blocks == usual + 1);
	WORKS(umount(base));
	WORKS(fresh("nr_blocks=7", 0));
	SO(room()->f_blocks == 7);
	WORKS(umount(base));
}

static void users(void)
{
	WORKS(fresh("size=1m", 0));
	WORKS(mkdir(in("d"), 0700));
	WORKS(put("d/f", PAGE));
	int file = open(in("d/f"), O_RDONLY);
	FAILS(umount(base), EBUSY);
	FAILS(umount2(base, MNT_FORCE), EBUSY);
	char *at = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	close(file);
	FAILS(umount(base), EBUSY);
	munmap(at, PAGE);
	WORKS(chdir(in("d")));
	FAILS(umount(base), EBUSY);
	WORKS(chdir("/"));
	file = open(base, O_PATH);
	FAILS(umount(base), EBUSY);
	int other = dup(file);
	close(file);
	FAILS(umount(base), EBUSY);
	close(other);
	/* A directory that is a mount point stays where it is. */
	WORKS(mount("below", in("d"), "tmpfs", 0, 0));
	FAILS(umount(base), EBUSY);
	FAILS(rmdir(in("d")), EBUSY);
	FAILS(rename(in("d"), in("e")), EBUSY);
	FAILS(link(in("x"), in("d/x")), ENOENT);
	WORKS(put("x", 1));
	FAILS(link(in("x"), in("d/x")), EXDEV);
	FAILS(rename(in("x"), in("d/x")), EXDEV);
	SO(access(in("d/f"), F_OK) == -1 && errno == ENOENT);
	WORKS(umount(in("d")));
	WORKS(access(in("d/f"), F_OK));
	WORKS(umount(base));
	FAILS(umount(base), EINVAL);
	/* On top of each other. */
	WORKS(fresh(0, 0));
	WORKS(put("lower", 1));
	WORKS(fresh(0, 0));
	SO(access(in("lower"), F_OK) == -1);
	WORKS(put("upper", 1));
	WORKS(umount(base));
	WORKS(access(in("lower"), F_OK));
	WORKS(umount(base));
	/* A link to it, followed or not. */
	snprintf(path, sizeof path, "%s-link", base);
	WORKS(fresh(0, 0));
	WORKS(symlink(base, path));
	FAILS(umount2(path, UMOUNT_NOFOLLOW), EINVAL);
	WORKS(umount2(path, 0));
	snprintf(path, sizeof path, "%s-link", base);
	WORKS(unlink(path));
	/* When it was idle for a while. */
	WORKS(fresh(0, 0));
	file = open(base, O_RDONLY);
	FAILS(umount2(base, MNT_EXPIRE), EBUSY);
	close(file);
	FAILS(umount2(base, MNT_EXPIRE), EAGAIN);
	file = open(base, O_RDONLY);
	close(file);
	FAILS(umount2(base, MNT_EXPIRE), EAGAIN);
	WORKS(umount2(base, MNT_EXPIRE));
	FAILS(umount2(base, MNT_EXPIRE), EINVAL);
}

static void detached(void)
{
	WORKS(fresh("size=1m", 0));
	WORKS(mkdir(in("d"), 0700));
	WORKS(put("d/f", PAGE));
	WORKS(mkdir(in("m"), 0700));
	WORKS(mount("below", in("m"), "tmpfs", 0, 0));
	WORKS(put("m/g", 1));
	int file = open(in("d/f"), O_RDWR), folder = open(in("d"), O_RDONLY | O_DIRECTORY);
	WORKS(chdir(in("d")));
	WORKS(umount2(base, MNT_DETACH));
	SO(!line_of("/proc/mounts") && access(in("d"), F_OK));
	/* All of it is there for who has a place in it. */
	WORKS(pwrite(file, "hello", 5, 0));
	SO(pread(file, text, 5, 0) == 5 && !memcmp(text, "hello", 5));
	WORKS(access("f", F_OK));
	WORKS(faccessat(folder, "f", F_OK, 0));
	WORKS(access("../d/f", F_OK));
	WORKS(access("../m", F_OK));
	SO(access("../m/g", F_OK) == -1);
	SO(access("../../../../d/f", F_OK) == 0);
	close(creat("new", 0600));
	WORKS(access("../d/new", F_OK));
	SO(!getcwd(text, sizeof text) || !strncmp(text, "(unreachable)", 13));
	close(file);
	SO(mount("none", "../m", "tmpfs", 0, 0) == -1);
	FAILS(umount(".."), EINVAL);
	WORKS(chdir("/"));
	close(folder);
	FAILS(umount2(base, MNT_DETACH), EINVAL);
}

static void flags(void)
{
	char *at;
	WORKS(fresh(0, MS_NOEXEC | MS_NODEV | MS_NOSUID));
	SO(strstr(line_of("/proc/mounts"), "rw,nosuid,nodev,noexec,relatime"));
	struct statvfs all;
	WORKS(statvfs(base, &all));
	SO((all.f_flag & 31) == (ST_NOEXEC | ST_NODEV | ST_NOSUID));
	WORKS(mknod(in("null"), S_IFCHR | 0666, 0x103));
	FAILS(open(in("null"), O_RDWR), EACCES);
	int file = open(in("program"), O_RDWR | O_CREAT, 0755);
	WORKS(write(file, "#!/bin/sh\n", 10));
	FAILS((long)mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0), EPERM);
	at = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	SO(at != MAP_FAILED);
	FAILS(mprotect(at, PAGE, PROT_READ | PROT_EXEC), EACCES);
	WORKS(mprotect(at, PAGE, PROT_READ | PROT_WRITE));
	munmap(at, PAGE);
	close(file);
	FAILS(execl(in("program"), "program", NULL), EACCES);
	FAILS(access(in("program"), X_OK), EACCES);
	WORKS(access(in("program"), R_OK | W_OK));
	/* The other way round: a remount without flags takes them away. */
	WORKS(mount(0, base, 0, MS_REMOUNT, 0));
	WORKS(access(in("program"), X_OK));
	file = open(in("null"), O_RDWR);
	WORKS(file);
	close(file);
	/* Read-only. */
	file = open(in("program"), O_RDWR);
	FAILS(mount(0, base, 0, MS_REMOUNT | MS_RDONLY, 0), EBUSY);
	at = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	FAILS(mount(0, base, 0, MS_REMOUNT | MS_RDONLY, 0), EBUSY);
	munmap(at, PAGE);
	WORKS(mkdir(in("d"), 0700));
	WORKS(symlink("x", in("l")));
	WORKS(mount(0, base, 0, MS_REMOUNT | MS_RDONLY | MS_NOATIME, 0));
	SO(strstr(line_of("/proc/mounts"), " ro,noatime"));
	WORKS(statvfs(base, &all));
	SO((all.f_flag & 31) == ST_RDONLY && all.f_flag & ST_NOATIME && !(all.f_flag & ST_RELATIME));
	FAILS(open(in("program"), O_RDWR), EROFS);
	FAILS(open(in("program"), O_WRONLY | O_TRUNC), EROFS);
	FAILS(open(in("fresh"), O_WRONLY | O_CREAT, 0600), EROFS);
	FAILS(open(base, O_RDWR | O_TMPFILE, 0600), EROFS);
	FAILS(unlink(in("program")), EROFS);
	FAILS(rmdir(in("d")), EROFS);
	FAILS(mkdir(in("e"), 0700), EROFS);
	FAILS(mkdir(in("d"), 0700), EEXIST);
	FAILS(rename(in("d"), in("e")), EROFS);
	FAILS(link(in("program"), in("e")), EROFS);
	FAILS(symlink("x", in("e")), EROFS);
	FAILS(mknod(in("e"), S_IFIFO | 0600, 0), EROFS);
	FAILS(chmod(in("program"), 0600), EROFS);
	FAILS(chown(in("program"), 1, 1), EROFS);
	FAILS(truncate(in("program"), 0), EROFS);
	FAILS(rename(in("none"), in("e")), EROFS);
	/* Another user learns of the file system first, and of permissions then. */
	WORKS(seteuid(1234));
	FAILS(open(in("program"), O_WRONLY), EROFS);
	FAILS(truncate(in("program"), 0), EROFS);
	FAILS(access(in("program"), W_OK), EROFS);
	WORKS(seteuid(0));
	FAILS(utimensat(AT_FDCWD, in("program"), 0, 0), EROFS);
	FAILS(access(in("program"), W_OK), EROFS);
	FAILS(access(base, W_OK), EROFS);
	WORKS(access(in("null"), W_OK));
	file = open(in("null"), O_RDWR);
	WORKS(write(file, "x", 1));
	close(file);
	file = open(in("program"), O_RDONLY);
	SO(read(file, text, 20) == 10);
	close(file);
	WORKS(mount(0, base, 0, MS_REMOUNT | MS_BIND | MS_NOSUID, 0));
	WORKS(umount(base));
	/* Access times. */
	struct stat before, after;
	static const struct timespec old[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
	for (int i = 0; i < 3; i++) {
		WORKS(fresh(0, (unsigned long[]){ 0, MS_NOATIME, MS_STRICTATIME }[i]));
		WORKS(put("f", 10));
		WORKS(utimensat(AT_FDCWD, in("f"), old, 0));
		/* With `relatime` an access time that is not later than the change lets the next
		   one be kept, too. */
		sleep_ms(20);
		file = open(in("f"), O_RDONLY);
		WORKS(read(file, text, 1));
		stat(in("f"), &before);
		SO((before.st_atime != old[0].tv_sec) == (i != 1));
		sleep_ms(20);
		WORKS(read(file, text, 1));
		stat(in("f"), &after);
		SO((after.st_atim.tv_nsec != before.st_atim.tv_nsec) == (i == 2));
		close(file);
		WORKS(umount(base));
	}
	FAILS(mount(base, base, 0, MS_MOVE, 0), EINVAL);
}

/* Deeper than any stack, and more than one call frees at a time. */
static void large(void)
{
	WORKS(fresh("size=64m", 0));
	WORKS(chdir(base));
	int depth = 0;
	while (depth < 3000 && mkdir("d", 0700) == 0 && chdir("d") == 0)
		depth++;
	SO(depth == 3000);
	close(creat("f", 0600));
	WORKS(chdir("/"));
	for (int i = 0; i < 2000; i++) {
		snprintf(text, 20, "f%d", i);
		if (put(text, 2 * PAGE))
			break;
	}
	WORKS(access(in("f1999"), F_OK));
	WORKS(put("big", 32 << 20));
	WORKS(umount(base));
	/* The same by the last one who uses it. */
	WORKS(fresh("size=64m", 0));
	WORKS(chdir(base));
	while (depth > 0 && mkdir("d", 0700) == 0 && chdir("d") == 0)
		depth--;
	WORKS(put("big", 32 << 20));
	WORKS(umount2(base, MNT_DETACH));
	WORKS(chdir("/"));
}

/* Mounts come and go while others use the place. */
static void storm(void)
{
	pid_t children[4];
	for (int i = 0; i < 4; i++)
		if (!(children[i] = fork())) {
			unsigned seed = i;
			for (int round = 0; round < 400; round++) {
				char name[16];
				snprintf(name, sizeof name, "s%d", i);
				switch (rand_r(&seed) % 6) {
				case 0: fresh("size=1m", 0); break;
				case 1: umount2(base, rand_r(&seed) % 2 ? MNT_DETACH : 0); break;
				case 2: put(name, 3 * PAGE); break;
				case 3: if (chdir(base) == 0 && chdir("/") != 0) _exit(1); break;
				case 4: line_of("/proc/self/mounts"); break;
				case 5: unlink(in(name)); break;
				}
			}
			_exit(0);
		}
	int status, well = 0;
	for (int i = 0; i < 4; i++)
		well += waitpid(children[i], &status, 0) > 0 && status == 0;
	SO(well == 4);
	while (umount2(base, MNT_DETACH) == 0)
		;
	SO(!line_of("/proc/mounts"));
	for (int i = 0; i < 4; i++) {
		snprintf(text, 20, "s%d", i);
		unlink(in(text));
	}
}

int main(int n, char **words)
{
	/* Elsewhere than in a guest no other process is to see it. */
	unshare(CLONE_NEWNS);
	mount(0, "/", 0, MS_PRIVATE | MS_REC, 0);
	snprintf(base, sizeof base, "%s", words[1]);
	MUST(mkdir(base, 0700));
	arguments();
	sizes();
	links();
	users();
	detached();
	flags();
	large();
	storm();
	MUST(rmdir(base));
	say("%d statements, %d do not hold", looked, wrong);
	return wrong != 0;
}
