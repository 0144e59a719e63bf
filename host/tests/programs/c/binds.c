/* Bind mounts: what is seen through them, what they forbid, and what has them in use; needs to be root. `binds FOLDER`. Says only
   what does not hold, and how much was looked at. Where mount namespaces are, it works in one of its own. */
#include "say.h"
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/un.h>

static int looked, wrong;

#define SO(what) do { looked++; errno = 0; if (!(what)) { wrong++; \
	say("line %d: %s does not hold (%s)", __LINE__, #what, strerrorname_np(errno)); } } while (0)
#define FAILS(call, error) do { looked++; errno = 0; long r_ = (long)(call); int e_ = errno; \
	if (r_ != -1 || e_ != (error)) { wrong++; \
		say("line %d: %s = %ld %s instead of %s", __LINE__, #call, r_, strerrorname_np(e_), strerrorname_np(error)); } } while (0)
#define WORKS(call) SO((long)(call) != -1)

static char base[256], text[65536];

/* A path below the folder; good until the 16th call after it. */
static const char *in(const char *name)
{
	static char paths[16][512];
	static int n;
	char *to = paths[n++ % 16];
	snprintf(to, 512, "%s%s%s", base, *name ? "/" : "", name);
	return to;
}

static int twice(const char *from, const char *to, unsigned long more)
{
	return mount(in(from), in(to), 0, MS_BIND | more, 0);
}

static int again(const char *at, unsigned long flags)
{
	return mount(0, in(at), 0, MS_REMOUNT | MS_BIND | flags, 0);
}

static int put(const char *name, const char *what)
{
	int file = open(in(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (file < 0)
		return -1;
	int done = write(file, what, strlen(what));
	close(file);
	return done;
}

static int has(const char *name, const char *what)
{
	char found[256];
	int file = open(in(name), O_RDONLY);
	if (file < 0)
		return 0;
	int n = read(file, found, sizeof found - 1);
	close(file);
	return n == (int)strlen(what) && !memcmp(found, what, n);
}

static ino_t number(const char *name)
{
	struct stat st;
	return stat(in(name), &st) ? 0 : st.st_ino;
}

static unsigned long mount_id(int folder, const char *name)
{
	struct statx st;
	return statx(folder, name, *name ? 0 : AT_EMPTY_PATH, STATX_MNT_ID, &st) ? 0 : st.stx_mnt_id;
}

/* The last line of mountinfo about a mount point, in `text`; 0 if there is none. */
static char *info(const char *name)
{
	static char line[4096];
	char word[600];
	FILE *file = fopen("/proc/self/mountinfo", "r");
	int found = 0;
	snprintf(word, sizeof word, " %s ", in(name));
	while (fgets(line, sizeof line, file)) {
		char *at = strstr(line, word), *end = strstr(line, " - ");
		if (at && at < end) {
			strcpy(text, line);
			found = 1;
		}
	}
	fclose(file);
	return found ? text : 0;
}

static int info_lines(void)
{
	static char line[4096];
	FILE *file = fopen("/proc/self/mountinfo", "r");
	int n = 0;
	while (fgets(line, sizeof line, file))
		n++;
	fclose(file);
	return n;
}

static char *link_text(const char *path)
{
	static char to[4096];
	int n = readlink(path, to, sizeof to - 1);
	to[n < 0 ? 0 : n] = 0;
	return to;
}

static void fill(void)
{
	WORKS(mkdir(in("a"), 0755));
	WORKS(mkdir(in("a/d"), 0755));
	WORKS(mkdir(in("a/d/e"), 0755));
	WORKS(mkdir(in("a/m"), 0755));
	WORKS(put("a/f", "file"));
	WORKS(put("a/d/g", "below"));
	WORKS(mkdir(in("b"), 0755));
	WORKS(mkdir(in("c"), 0755));
	WORKS(put("x", "other"));
	WORKS(put("y", "third"));
}

static void arguments(void)
{
	FAILS(mount(0, in("b"), 0, MS_BIND, 0), EINVAL);
	FAILS(mount("", in("b"), 0, MS_BIND, 0), EINVAL);
	FAILS(twice("none", "b", 0), ENOENT);
	FAILS(twice("a", "none", 0), ENOENT);
	FAILS(twice("a", "x", 0), ENOTDIR);
	FAILS(twice("x", "b", 0), ENOTDIR);
	FAILS(twice("x/z", "b", 0), ENOTDIR);
	FAILS(mount((void *)1, in("b"), 0, MS_BIND, 0), EFAULT);
	FAILS(again("a", MS_RDONLY), EINVAL);
	FAILS(umount(in("a")), EINVAL);
	int ends[2];
	WORKS(pipe(ends));
	snprintf(text, sizeof text, "/proc/self/fd/%d", ends[0]);
	FAILS(mount(text, in("x"), 0, MS_BIND, 0), EINVAL);
	close(ends[0]), close(ends[1]);
	/* The type and the options say nothing, and flags but MS_REC neither. */
	WORKS(mount(in("a"), in("b"), "no_such_type", MS_BIND | MS_RDONLY | MS_NOEXEC, "none,such"));
	WORKS(put("b/new", "1"));
	WORKS(unlink(in("a/new")));
	WORKS(umount(in("b")));
	pid_t child = fork();
	if (!child) {
		setuid(1234);
		_exit(twice("a", "b", 0) == -1 && errno == EPERM && umount(in("b")) == -1 && errno == EPERM ? 0 : 1);
	}
	int status;
	waitpid(child, &status, 0);
	SO(status == 0);
}

static void seen_twice(void)
{
	struct stat one, two;
	WORKS(twice("a", "b", 0));
	WORKS(stat(in("a"), &one));
	WORKS(stat(in("b"), &two));
	SO(one.st_dev == two.st_dev && one.st_ino == two.st_ino);
	SO(has("b/f", "file") && has("b/d/g", "below"));
	WORKS(put("b/h", "made"));
	SO(has("a/h", "made"));
	WORKS(unlink(in("a/h")));
	FAILS(access(in("b/h"), F_OK), ENOENT);
	/* The way up is that of the place. */
	WORKS(chdir(in("b/d/e")));
	SO(!strcmp(getcwd(text, sizeof text), in("b/d/e")));
	SO(!strcmp(link_text("/proc/self/cwd"), in("b/d/e")));
	WORKS(access("../../../x", F_OK));
	WORKS(stat("../..", &two));
	SO(two.st_ino == one.st_ino);
	WORKS(stat("../../..", &two));
	SO(two.st_ino == number(""));
	WORKS(chdir("/"));
	int folder = open(in("b/d"), O_RDONLY | O_DIRECTORY);
	WORKS(faccessat(folder, "../../x", F_OK, 0));
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", folder);
	SO(!strcmp(link_text(path), in("b/d")));
	close(folder);
	/* In one mount names move, between two they do not. */
	WORKS(rename(in("b/f"), in("b/d/f")));
	SO(has("a/d/f", "file"));
	WORKS(rename(in("a/d/f"), in("a/f")));
	FAILS(rename(in("a/f"), in("b/i")), EXDEV);
	FAILS(rename(in("b/f"), in("a/i")), EXDEV);
	FAILS(rename(in("b/f"), in("a/f")), EXDEV);
	FAILS(rename(in("b/none"), in("a/f")), EXDEV);
	FAILS(link(in("a/f"), in("b/i")), EXDEV);
	FAILS(link(in("b/f"), in("a/i")), EXDEV);
	WORKS(link(in("b/f"), in("b/i")));
	WORKS(unlink(in("a/i")));
	WORKS(syscall(SYS_renameat2, AT_FDCWD, in("b/d"), AT_FDCWD, in("b/m"), 2));
	SO(has("a/m/g", "below"));
	WORKS(syscall(SYS_renameat2, AT_FDCWD, in("a/d"), AT_FDCWD, in("a/m"), 2));
	/* A nameless file gets a name in its mount. */
	int file = open(in("b"), O_RDWR | O_TMPFILE, 0600);
	WORKS(file);
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	FAILS(linkat(AT_FDCWD, path, AT_FDCWD, in("a/t"), AT_SYMLINK_FOLLOW), EXDEV);
	WORKS(linkat(AT_FDCWD, path, AT_FDCWD, in("b/t"), AT_SYMLINK_FOLLOW));
	WORKS(unlink(in("b/t")));
	close(file);
	/* What is mounted there stays, by both names. */
	FAILS(rmdir(in("b")), EBUSY);
	FAILS(rename(in("b"), in("q")), EBUSY);
	FAILS(unlink(in("b")), EISDIR);
	WORKS(symlink("d/g", in("b/l")));
	SO(has("b/l", "below") && !strcmp(link_text(in("b/l")), "d/g"));
	WORKS(unlink(in("b/l")));
	WORKS(umount(in("b")));
	FAILS(access(in("b/f"), F_OK), ENOENT);
	/* A directory on itself, twice. */
	WORKS(twice("a", "a", 0));
	WORKS(twice("a", "a", 0));
	SO(has("a/f", "file"));
	WORKS(umount(in("a")));
	WORKS(umount(in("a")));
	FAILS(umount(in("a")), EINVAL);
	/* A bind mount of a bind mount shows the file system, and outlasts it. */
	WORKS(twice("a", "b", 0));
	WORKS(twice("b", "c", 0));
	SO(info("c") && strstr(text, " /a "));
	WORKS(umount(in("c")));
	WORKS(twice("b/d", "c", 0));
	WORKS(umount(in("b")));
	SO(has("c/g", "below"));
	SO(info("c") && strstr(text, " /a/d "));
	WORKS(umount(in("c")));
}

static void mounts_below(void)
{
	int before = info_lines();
	WORKS(mount("none", in("a/m"), "tmpfs", 0, 0));
	WORKS(put("a/m/in", "deep"));
	WORKS(mkdir(in("a/m/n"), 0755));
	WORKS(twice("a/d", "a/m/n", 0));
	/* Below a mount without MS_REC there is the directory itself. */
	WORKS(twice("a", "b", 0));
	FAILS(access(in("b/m/in"), F_OK), ENOENT);
	WORKS(twice("a", "c", MS_REC));
	SO(has("c/m/in", "deep") && has("c/m/n/g", "below"));
	SO(info_lines() == before + 6);
	SO(info("c/m/n") && strstr(text, " /a/d "));
	SO(info("c/m") && strstr(text, " / ") && strstr(text, " - tmpfs none "));
	SO(mount_id(AT_FDCWD, in("c/m")) != mount_id(AT_FDCWD, in("a/m")));
	/* Each covers what it stands on, and nothing else. */
	FAILS(rmdir(in("b/m")), EBUSY);
	FAILS(rename(in("b/m"), in("b/z")), EBUSY);
	FAILS(rmdir(in("a/m/n")), EBUSY);
	FAILS(rmdir(in("c/m/n")), EBUSY);
	WORKS(mount("none", in("b/d/e"), "tmpfs", 0, 0));
	WORKS(put("b/d/e/only", "here"));
	FAILS(access(in("a/d/e/only"), F_OK), ENOENT);
	FAILS(access(in("c/m/n/e/only"), F_OK), ENOENT);
	FAILS(rmdir(in("a/d/e")), EBUSY);
	WORKS(chdir(in("b/d/e")));
	SO(!strcmp(getcwd(text, sizeof text), in("b/d/e")));
	WORKS(access("../g", F_OK));
	WORKS(chdir("/"));
	FAILS(umount(in("b")), EBUSY);
	WORKS(umount(in("b/d/e")));
	WORKS(umount(in("b")));
	FAILS(umount(in("c")), EBUSY);
	/* The one that was mounted first goes, its copy stays. */
	WORKS(umount(in("a/m/n")));
	WORKS(umount(in("a/m")));
	SO(has("c/m/in", "deep") && has("c/m/n/g", "below"));
	FAILS(access(in("a/m/in"), F_OK), ENOENT);
	WORKS(umount2(in("c"), MNT_DETACH));
	SO(info_lines() == before);
	/* An ancestor below itself is seen once. */
	WORKS(twice("", "a/m", 0));
	SO(has("a/m/a/f", "file"));
	FAILS(access(in("a/m/a/m/a"), F_OK), ENOENT);
	WORKS(twice("", "a/m/a/m", MS_REC));
	SO(has("a/m/a/m/a/m/a/f", "file"));
	FAILS(access(in("a/m/a/m/a/m/a/m/a"), F_OK), ENOENT);
	WORKS(chdir(in("a/m/a/m/a/m/a/d")));
	SO(!strcmp(getcwd(text, sizeof text), in("a/m/a/m/a/m/a/d")));
	WORKS(chdir("/"));
	WORKS(umount2(in("a/m"), MNT_DETACH));
	SO(info_lines() == before);
}

static void files(void)
{
	WORKS(link(in("x"), in("x2")));
	WORKS(twice("a/f", "x", 0));
	SO(has("x", "file") && has("x2", "other") && number("x") == number("a/f"));
	SO(info("x") && strstr(text, " /a/f "));
	WORKS(put("x", "changed"));
	SO(has("a/f", "changed"));
	WORKS(put("a/f", "file"));
	FAILS(unlink(in("x")), EBUSY);
	FAILS(rename(in("x"), in("z")), EBUSY);
	FAILS(rename(in("y"), in("x")), EBUSY);
	FAILS(link(in("x"), in("z")), EXDEV);
	FAILS(open(in("x"), O_WRONLY | O_CREAT | O_EXCL, 0600), EEXIST);
	FAILS(mount("none", in("x"), "tmpfs", 0, 0), ENOTDIR);
	FAILS(twice("a", "x", 0), ENOTDIR);
	FAILS(rmdir(in("x")), ENOTDIR);
	int file = open(in("x"), O_RDONLY);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	SO(!strcmp(link_text(path), in("x")));
	FAILS(umount(in("x")), EBUSY);
	close(file);
	/* A bind mount of it shows the same. */
	WORKS(twice("x", "y", 0));
	SO(has("y", "file") && info("y") && strstr(text, " /a/f "));
	WORKS(umount(in("y")));
	/* One on the other; and by a descriptor's link. */
	WORKS(twice("y", "x", 0));
	SO(has("x", "third"));
	WORKS(umount(in("x")));
	SO(has("x", "file"));
	file = open(in("y"), O_PATH);
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	WORKS(mount(path, in("x"), 0, MS_BIND, 0));
	SO(has("x", "third"));
	WORKS(umount(in("x")));
	WORKS(mount(in("a/f"), path, 0, MS_BIND, 0));
	SO(has("y", "file"));
	close(file);
	WORKS(umount(in("y")));
	/* The covered name in another mount. */
	WORKS(twice("", "b", 0));
	SO(has("b/x", "other"));
	FAILS(unlink(in("b/x")), EBUSY);
	WORKS(twice("y", "b/x", 0));
	SO(has("b/x", "third") && has("x", "file"));
	WORKS(umount(in("b/x")));
	WORKS(umount(in("b")));
	WORKS(twice("", "c", MS_REC));
	SO(has("c/x", "file"));
	WORKS(umount2(in("c"), MNT_DETACH));
	/* What is shown outlasts its name. */
	WORKS(put("gone", "kept"));
	WORKS(twice("gone", "y", 0));
	WORKS(unlink(in("gone")));
	SO(has("y", "kept"));
	SO(info("y") && strstr(text, " /gone//deleted "));
	WORKS(umount(in("y")));
	SO(has("y", "third"));
	WORKS(umount(in("x")));
	SO(has("x", "other"));
	WORKS(unlink(in("x2")));
	/* Null for a file, as containers have it. */
	WORKS(mount("/dev/null", in("x"), 0, MS_BIND, 0));
	SO(has("x", ""));
	WORKS(put("x", "nowhere"));
	WORKS(umount(in("x")));
	SO(has("x", "other"));
}

static void read_only(void)
{
	struct statvfs all;
	char *at;
	WORKS(twice("a", "b", 0));
	int file = open(in("b/f"), O_RDWR);
	FAILS(again("b", MS_RDONLY), EBUSY);
	at = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	FAILS(again("b", MS_RDONLY), EBUSY);
	munmap(at, PAGE);
	/* A file that is open elsewhere does not count. */
	file = open(in("a/f"), O_RDWR);
	WORKS(again("b", MS_RDONLY));
	close(file);
	SO(info("b") && strstr(text, " ro,relatime "));
	SO(strstr(strstr(text, " - "), " rw"));
	WORKS(statvfs(in("b"), &all));
	SO(all.f_flag & ST_RDONLY);
	WORKS(statvfs(in("a"), &all));
	SO(!(all.f_flag & ST_RDONLY));
	FAILS(open(in("b/f"), O_RDWR), EROFS);
	FAILS(open(in("b/f"), O_WRONLY | O_TRUNC), EROFS);
	FAILS(open(in("b/f"), O_RDONLY | O_TRUNC), EROFS);
	FAILS(open(in("b/new"), O_WRONLY | O_CREAT, 0600), EROFS);
	FAILS(open(in("b/new"), O_RDONLY | O_CREAT, 0600), EROFS);
	FAILS(open(in("b/f"), O_RDWR | O_CREAT, 0600), EROFS);
	FAILS(open(in("b"), O_RDWR | O_TMPFILE, 0600), EROFS);
	FAILS(mkdir(in("b/new"), 0700), EROFS);
	FAILS(mkdir(in("b/d"), 0700), EEXIST);
	FAILS(rmdir(in("b/d")), EROFS);
	FAILS(unlink(in("b/f")), EROFS);
	FAILS(rename(in("b/f"), in("b/g")), EROFS);
	FAILS(link(in("b/f"), in("b/g")), EROFS);
	FAILS(symlink("x", in("b/new")), EROFS);
	FAILS(mknod(in("b/new"), S_IFIFO | 0600, 0), EROFS);
	FAILS(chmod(in("b/f"), 0600), EROFS);
	FAILS(chown(in("b/f"), 1, 1), EROFS);
	FAILS(truncate(in("b/f"), 0), EROFS);
	FAILS(utimensat(AT_FDCWD, in("b/f"), 0, 0), EROFS);
	FAILS(syscall(SYS_setxattr, in("b/f"), "trusted.x", "y", 1, 0), EROFS);
	FAILS(access(in("b/f"), W_OK), EROFS);
	FAILS(access(in("b"), W_OK), EROFS);
	WORKS(access(in("b/f"), R_OK));
	file = open(in("b/f"), O_RDONLY);
	FAILS(fchmod(file, 0600), EROFS);
	FAILS((long)mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), EACCES);
	close(file);
	WORKS(chmod(in("a/f"), 0644));
	WORKS(put("a/f", "file"));
	/* What has a node and no bytes is written. */
	WORKS(mkfifo(in("a/p"), 0600));
	file = open(in("b/p"), O_RDWR);
	WORKS(write(file, "x", 1));
	close(file);
	WORKS(mknod(in("a/null"), S_IFCHR | 0666, 0x103));
	file = open(in("b/null"), O_RDWR);
	WORKS(write(file, "x", 1));
	close(file);
	/* A bind mount of it begins as it is, and then has its own way. */
	WORKS(twice("b/d", "c", 0));
	FAILS(open(in("c/g"), O_RDWR), EROFS);
	WORKS(again("c", 0));
	WORKS(put("c/g", "below"));
	FAILS(open(in("b/d/g"), O_RDWR), EROFS);
	WORKS(umount(in("c")));
	WORKS(umount(in("b")));
	/* No programs, no devices. */
	WORKS(twice("a", "b", 0));
	WORKS(put("a/s", "#!/bin/sh\n"));
	WORKS(chmod(in("a/s"), 0755));
	WORKS(again("b", MS_NOEXEC | MS_NODEV | MS_NOSUID));
	SO(info("b") && strstr(text, " rw,nosuid,nodev,noexec,relatime "));
	WORKS(statvfs(in("b"), &all));
	SO((all.f_flag & 31) == (ST_NOEXEC | ST_NODEV | ST_NOSUID));
	FAILS(open(in("b/null"), O_RDWR), EACCES);
	FAILS(execl(in("b/s"), "s", NULL), EACCES);
	FAILS(access(in("b/s"), X_OK), EACCES);
	WORKS(access(in("a/s"), X_OK));
	file = open(in("b/s"), O_RDONLY);
	FAILS((long)mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0), EPERM);
	close(file);
	file = open(in("a/null"), O_RDWR);
	WORKS(file);
	close(file);
	WORKS(umount(in("b")));
	/* A file alone. */
	WORKS(twice("a/f", "x", 0));
	WORKS(again("x", MS_RDONLY));
	FAILS(open(in("x"), O_RDWR), EROFS);
	FAILS(truncate(in("x"), 0), EROFS);
	WORKS(umount(in("x")));
	/* Without MS_BIND the file system changes, wherever it is seen. */
	WORKS(twice("a", "b", 0));
	WORKS(mount(0, in("b"), 0, MS_REMOUNT | MS_RDONLY, 0));
	FAILS(open(in("a/f"), O_RDWR), EROFS);
	FAILS(open(in("b/f"), O_RDWR), EROFS);
	SO(info("b") && strstr(strstr(text, " - "), " ro"));
	WORKS(mount(0, in("b"), 0, MS_REMOUNT, 0));
	WORKS(put("a/f", "file"));
	WORKS(put("b/f", "file"));
	WORKS(umount(in("b")));
	unlink(in("a/null")), unlink(in("a/p")), unlink(in("a/s"));
}

static void moved_out(void)
{
	WORKS(mkdir(in("a/d/e/deep"), 0755));
	WORKS(twice("a/d", "b", 0));
	WORKS(chdir(in("b/e/deep")));
	int folder = open(in("b/e"), O_RDONLY | O_DIRECTORY);
	WORKS(rename(in("a/d/e"), in("a/out")));
	/* Up to where it was moved to, but no further: above is what the mount does not show. */
	FAILS(access("..", F_OK), ENOENT);
	FAILS(access("../..", F_OK), ENOENT);
	FAILS(faccessat(folder, "..", F_OK, 0), ENOENT);
	FAILS(faccessat(folder, "../f", F_OK, 0), ENOENT);
	WORKS(faccessat(folder, "deep", F_OK, 0));
	SO(syscall(SYS_getcwd, text, sizeof text) == -1 || strncmp(text, base, strlen(base)));
	WORKS(rename(in("a/out"), in("a/d/e")));
	WORKS(access("../..", F_OK));
	SO(getcwd(text, sizeof text) && !strcmp(text, in("b/e/deep")));
	close(folder);
	WORKS(chdir("/"));
	WORKS(rmdir(in("b/e/deep")));
	WORKS(umount(in("b")));
	/* A root that is removed stays empty. */
	WORKS(mkdir(in("r"), 0755));
	WORKS(twice("r", "b", 0));
	WORKS(rmdir(in("r")));
	SO(info("b") && strstr(text, " /r//deleted "));
	WORKS(access(in("b"), F_OK));
	FAILS(open(in("b/f"), O_WRONLY | O_CREAT, 0600), ENOENT);
	WORKS(umount(in("b")));
	/* Nothing is mounted on what is removed. */
	WORKS(twice("a", "b", 0));
	WORKS(mkdir(in("b/r"), 0755));
	folder = open(in("b/r"), O_PATH);
	WORKS(rmdir(in("a/r")));
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", folder);
	FAILS(mount(in("c"), path, 0, MS_BIND, 0), ENOENT);
	close(folder);
	WORKS(umount(in("b")));
}

static void in_use(void)
{
	WORKS(twice("a", "b", 0));
	int file = open(in("b/f"), O_RDONLY);
	FAILS(umount(in("b")), EBUSY);
	char *at = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	close(file);
	FAILS(umount(in("b")), EBUSY);
	munmap(at, PAGE);
	WORKS(chdir(in("b/d")));
	FAILS(umount(in("b")), EBUSY);
	WORKS(chdir(in("a/d")));
	WORKS(umount(in("b")));
	WORKS(chdir("/"));
	/* Out of the tree, but there for who is in it. */
	WORKS(twice("a", "b", 0));
	file = open(in("b/f"), O_RDWR);
	int folder = open(in("b/d"), O_RDONLY | O_DIRECTORY);
	WORKS(chdir(in("b/d/e")));
	WORKS(umount2(in("b"), MNT_DETACH));
	SO(pread(file, text, 4, 0) == 4 && !memcmp(text, "file", 4));
	WORKS(pwrite(file, "FILE", 4, 0));
	SO(has("a/f", "FILE"));
	WORKS(pwrite(file, "file", 4, 0));
	WORKS(faccessat(folder, "g", F_OK, 0));
	WORKS(access("../../f", F_OK));
	FAILS(access("../../../x", F_OK), ENOENT);
	WORKS(access("../../../f", F_OK));
	SO(mount(in("a"), "../../m", 0, MS_BIND, 0) == -1);
	FAILS(mount("../../d", in("c"), 0, MS_BIND, 0), EINVAL);
	FAILS(umount("../.."), EINVAL);
	WORKS(put("a/later", "seen"));
	WORKS(access("../../later", F_OK));
	WORKS(unlink("../../later"));
	FAILS(access(in("a/later"), F_OK), ENOENT);
	close(file), close(folder);
	WORKS(chdir("/"));
	/* A file system that is seen elsewhere is not in use, and stays. */
	WORKS(mount("none", in("b"), "tmpfs", 0, "size=1m"));
	WORKS(mkdir(in("b/s"), 0755));
	WORKS(put("b/s/t", "stays"));
	WORKS(twice("b/s", "c", 0));
	file = open(in("b/s/t"), O_RDONLY);
	FAILS(umount(in("b")), EBUSY);
	close(file);
	file = open(in("c/t"), O_RDONLY);
	int watch = inotify_init1(IN_NONBLOCK);
	WORKS(inotify_add_watch(watch, in("c/t"), IN_ALL_EVENTS));
	WORKS(umount(in("b")));
	SO(has("c/t", "stays"));
	struct stat st;
	WORKS(stat(in("c"), &st));
	WORKS(put("c/u", "new"));
	FAILS(umount(in("c")), EBUSY);
	close(file);
	/* With the last mount the file system goes, and not before. */
	struct { struct inotify_event event; char name[256]; } news[16];
	int unmounted = 0, n;
	while ((n = read(watch, news, sizeof news)) > 0)
		for (char *e = (char *)news; e < (char *)news + n; e += sizeof(struct inotify_event) + ((struct inotify_event *)e)->len)
			unmounted |= ((struct inotify_event *)e)->mask & IN_UNMOUNT;
	SO(!unmounted);
	WORKS(umount(in("c")));
	while ((n = read(watch, news, sizeof news)) > 0)
		for (char *e = (char *)news; e < (char *)news + n; e += sizeof(struct inotify_event) + ((struct inotify_event *)e)->len)
			unmounted |= ((struct inotify_event *)e)->mask & IN_UNMOUNT;
	SO(unmounted);
	close(watch);
	/* Idle for a while. */
	WORKS(twice("a", "b", 0));
	FAILS(umount2(in("b"), MNT_EXPIRE), EAGAIN);
	close(open(in("b/f"), O_RDONLY));
	FAILS(umount2(in("b"), MNT_EXPIRE), EAGAIN);
	WORKS(umount2(in("b"), MNT_EXPIRE));
}

static void numbers(void)
{
	WORKS(twice("a", "b", 0));
	unsigned long above = mount_id(AT_FDCWD, in("")), own = mount_id(AT_FDCWD, in("b/d/g"));
	SO(own != above && mount_id(AT_FDCWD, in("b")) == own && mount_id(AT_FDCWD, in("a/d/g")) == above);
	unsigned long shown[2] = { 0, 0 };
	unsigned int major_ = 0, minor_ = 0;
	struct stat st;
	WORKS(stat(in("b"), &st));
	SO(info("b") && sscanf(text, "%lu %lu %u:%u /a ", &shown[0], &shown[1], &major_, &minor_) == 4);
	SO(shown[0] == own && shown[1] == above);
	SO(major_ == st.st_dev >> 8 && minor_ == (st.st_dev & 0xff));
	struct { struct file_handle head; unsigned char bytes[64]; } one, two;
	int id;
	one.head.handle_bytes = two.head.handle_bytes = 64;
	WORKS(name_to_handle_at(AT_FDCWD, in("a/f"), &one.head, &id, 0));
	SO((unsigned long)id == above);
	WORKS(name_to_handle_at(AT_FDCWD, in("b/f"), &two.head, &id, 0));
	SO((unsigned long)id == own);
	SO(one.head.handle_bytes == two.head.handle_bytes &&
	   !memcmp(one.head.f_handle, two.head.f_handle, one.head.handle_bytes));
	int place = open(in("b"), O_RDONLY | O_DIRECTORY);
	int file = open_by_handle_at(place, &one.head, O_RDONLY);
	SO(file >= 0 && mount_id(file, "") == own);
	char path[64], line[256] = "";
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", place);
	FILE *of = fopen(path, "r");
	unsigned long in_fdinfo = 0;
	while (fgets(line, sizeof line, of))
		sscanf(line, "mnt_id: %lu", &in_fdinfo);
	fclose(of);
	SO(in_fdinfo == own);
	close(file), close(place);
	/* A walk that must not leave its mount does not go into another. */
	unsigned long how[3] = { O_RDONLY, 0, 1 };
	int folder = open(in(""), O_RDONLY | O_DIRECTORY);
	FAILS(syscall(SYS_openat2, folder, "b/f", how, sizeof how), EXDEV);
	FAILS(syscall(SYS_openat2, folder, "b/../x", how, sizeof how), EXDEV);
	file = syscall(SYS_openat2, folder, "a/f", how, sizeof how);
	WORKS(file);
	close(file);
	how[2] = 0x10;
	close(folder);
	folder = open(in("b/d"), O_RDONLY | O_DIRECTORY);
	file = syscall(SYS_openat2, folder, "../../../../g", how, sizeof how);
	WORKS(file);
	close(file);
	close(folder);
	WORKS(umount(in("b")));
}

static void processes(void)
{
	int status;
	WORKS(twice("a", "b", 0));
	pid_t child = fork();
	if (!child) {
		int bad = chroot(in("b/d")) || chdir("/e");
		struct stat here, up;
		bad |= !getcwd(text, sizeof text) || strcmp(text, "/e");
		bad |= access("/g", F_OK) || access("/../../../g", F_OK) || access("../../../../g", F_OK);
		bad |= !access("/../f", F_OK);
		bad |= stat("/", &here) || stat("/..", &up) || here.st_ino != up.st_ino;
		_exit(bad);
	}
	waitpid(child, &status, 0);
	SO(status == 0);
	/* The same directory, reached by another way, is no root. */
	child = fork();
	if (!child) {
		int out = open(in("a/d"), O_RDONLY | O_DIRECTORY);
		int bad = chroot(in("b/d")) || fchdir(out);
		bad |= access("../f", F_OK) || access("../../x", F_OK);
		_exit(bad);
	}
	waitpid(child, &status, 0);
	SO(status == 0);
	/* A program there, and what it has mapped. */
	int self = open("/proc/self/exe", O_RDONLY), copy = open(in("a/prog"), O_WRONLY | O_CREAT, 0755);
	struct stat st;
	fstat(self, &st);
	for (off_t done = 0; done < st.st_size;) {
		ssize_t now = read(self, text, sizeof text);
		if (now <= 0 || write(copy, text, now) != now)
			break;
		done += now;
	}
	close(self), close(copy);
	int go[2], told[2];
	WORKS(pipe(go));
	WORKS(pipe(told));
	child = fork();
	if (!child) {
		dup2(go[0], 0), dup2(told[1], 1);
		close(go[1]), close(told[0]);
		execl(in("b/prog"), "prog", "wait", NULL);
		_exit(99);
	}
	close(go[0]), close(told[1]);
	WORKS(read(told[0], text, 1));
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/exe", child);
	SO(!strcmp(link_text(path), in("b/prog")));
	snprintf(path, sizeof path, "/proc/%d/maps", child);
	FILE *maps = fopen(path, "r");
	int named = 0;
	while (fgets(text, sizeof text, maps))
		named |= !!strstr(text, in("b/prog"));
	fclose(maps);
	SO(named);
	FAILS(umount(in("b")), EBUSY);
	/* It runs, so it is not written, by neither name. */
	FAILS(open(in("a/prog"), O_WRONLY), ETXTBSY);
	FAILS(open(in("b/prog"), O_WRONLY), ETXTBSY);
	WORKS(umount2(in("b"), MNT_DETACH));
	FAILS(open(in("a/prog"), O_WRONLY), ETXTBSY);
	close(go[1]);
	waitpid(child, &status, 0);
	SO(status == 0);
	close(told[0]);
	WORKS(unlink(in("a/prog")));
}

static void shared_by_both(void)
{
	WORKS(twice("a", "b", 0));
	/* Locks. */
	int one = open(in("a/f"), O_RDWR), two = open(in("b/f"), O_RDWR);
	WORKS(flock(one, LOCK_EX));
	FAILS(flock(two, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	WORKS(flock(one, LOCK_UN));
	struct flock lock = { .l_type = F_WRLCK };
	WORKS(fcntl(one, F_OFD_SETLK, &lock));
	FAILS(fcntl(two, F_OFD_SETLK, &lock), EAGAIN);
	/* Memory. */
	char *at = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, one, 0);
	char *same = mmap(0, PAGE, PROT_READ, MAP_SHARED, two, 0);
	at[0] = 'F';
	SO(same[0] == 'F');
	at[0] = 'f';
	munmap(at, PAGE), munmap(same, PAGE);
	close(one), close(two);
	/* A socket's name and a FIFO. */
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
	strcpy(name.sun_path, in("b/sock"));
	WORKS(bind(server, (void *)&name, sizeof name));
	WORKS(listen(server, 1));
	strcpy(name.sun_path, in("a/sock"));
	WORKS(connect(client, (void *)&name, sizeof name));
	close(client), close(server);
	WORKS(unlink(in("a/sock")));
	WORKS(mkfifo(in("a/p"), 0600));
	one = open(in("a/p"), O_RDONLY | O_NONBLOCK), two = open(in("b/p"), O_WRONLY | O_NONBLOCK);
	WORKS(write(two, "x", 1));
	WORKS(read(one, text, 1));
	close(one), close(two);
	WORKS(unlink(in("b/p")));
	/* A watch hears of both. */
	int watch = inotify_init1(IN_NONBLOCK);
	int file = inotify_add_watch(watch, in("b/f"), IN_MODIFY), folder = inotify_add_watch(watch, in("a"), IN_CREATE | IN_DELETE);
	SO(inotify_add_watch(watch, in("a/f"), IN_MODIFY) == file);
	WORKS(put("a/f", "file"));
	WORKS(put("b/new", "file"));
	WORKS(unlink(in("b/new")));
	int n = read(watch, text, sizeof text), modified = 0, made = 0;
	for (char *e = text; e < text + n; e += sizeof(struct inotify_event) + ((struct inotify_event *)e)->len) {
		struct inotify_event *event = (void *)e;
		modified += event->wd == file;
		made += event->wd == folder && !strcmp(event->name, "new");
	}
	SO(modified >= 1 && made == 2);
	WORKS(umount(in("b")));
	/* The mount goes, what was watched stays. */
	SO(read(watch, text, sizeof text) == -1 && errno == EAGAIN);
	close(watch);
}

/* Other file systems. */
static void elsewhere(void)
{
	int before = info_lines();
	char path[600];
	WORKS(mount("/proc", in("b"), 0, MS_BIND, 0));
	snprintf(path, sizeof path, "b/%d/status", getpid());
	WORKS(access(in(path), R_OK));
	SO(atoi(link_text(in("b/self"))) == getpid());
	WORKS(again("b", MS_RDONLY));
	FAILS(open(in("b/sys/kernel/hostname"), O_WRONLY), EROFS);
	int file = open("/proc/sys/kernel/hostname", O_WRONLY);
	WORKS(file);
	close(file);
	WORKS(umount(in("b")));
	WORKS(mount("/dev", in("b"), 0, MS_BIND | MS_REC, 0));
	file = open(in("b/null"), O_RDWR);
	WORKS(write(file, "x", 1));
	close(file);
	WORKS(access(in("b/pts"), F_OK));
	WORKS(umount2(in("b"), MNT_DETACH));
	WORKS(mount("/", in("b"), 0, MS_BIND, 0));
	snprintf(path, sizeof path, "b%s", base);
	struct stat one, two;
	WORKS(stat(in(path), &one));
	WORKS(stat(in(""), &two));
	SO(one.st_dev != two.st_dev);
	WORKS(umount(in("b")));
	WORKS(mount("/", in("b"), 0, MS_BIND | MS_REC, 0));
	WORKS(stat(in(path), &one));
	SO(one.st_dev == two.st_dev && one.st_ino == two.st_ino);
	snprintf(path, sizeof path, "b%s/b", base);
	FAILS(access(in(strcat(path, "/proc")), F_OK), ENOENT);
	WORKS(access(in("b/proc/self/status"), R_OK));
	WORKS(umount2(in("b"), MNT_DETACH));
	SO(info_lines() == before);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "wait")) {
		char byte = 1;
		return write(1, &byte, 1) != 1 || read(0, &byte, 1) != 0;
	}
	if (argc != 2)
		return 2;
	snprintf(base, sizeof base, "%s", argv[1]);
	if (unshare(CLONE_NEWNS) == 0)
		MUST(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
	mkdir(base, 0755);
	MUST(mount("none", base, "tmpfs", 0, "size=64m,mode=755"));
	fill();
	arguments();
	seen_twice();
	mounts_below();
	files();
	read_only();
	moved_out();
	in_use();
	numbers();
	processes();
	shared_by_both();
	elsewhere();
	WORKS(umount(base));
	rmdir(base);
	say("%d statements, %d do not hold", looked, wrong);
	return wrong != 0;
}
