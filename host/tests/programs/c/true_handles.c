/* Handles of files, errors in their order, and offsets that overflow. */
#include "say.h"
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static struct {
	struct file_handle head;
	char rest[MAX_HANDLE_SZ];
} h;
static int mount_number;

static void handles(void)
{
	char text[8] = "";
	int f = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0600), d = open("/tmp", O_RDONLY), g;
	TRY(write(f, "hello", 5));
	h.head.handle_bytes = 0;
	TRY(name_to_handle_at(AT_FDCWD, "/tmp/file", &h.head, &mount_number, 0));
	say("%u bytes, type %d", h.head.handle_bytes, h.head.handle_type > 0);
	TRY(name_to_handle_at(d, "file", &h.head, &mount_number, 0));
	DO(g = open_by_handle_at(d, &h.head, O_RDWR));
	TRY(read(g, text, 5));
	say("%s", text);
	TRY(close(g));
	TRY(rename("/tmp/file", "/tmp/other"));
	DO(g = open_by_handle_at(d, &h.head, O_RDONLY));
	TRY(close(g));
	TRY(open_by_handle_at(-1, &h.head, O_RDONLY));
	int p[2];
	MUST(pipe(p));
	TRY(open_by_handle_at(p[0], &h.head, O_RDWR));
	close(p[0]), close(p[1]);
	TRY(name_to_handle_at(f, "x", &h.head, &mount_number, 0));
	TRY(symlink("other", "/tmp/to_other"));
	TRY(name_to_handle_at(d, "to_other", &h.head, &mount_number, 0));
	TRY(open_by_handle_at(d, &h.head, O_RDWR));
	TRY(name_to_handle_at(d, "to_other", &h.head, &mount_number, AT_EMPTY_PATH | AT_SYMLINK_FOLLOW));
	DO(g = open_by_handle_at(d, &h.head, O_WRONLY));
	TRY(close(g));
	TRY(unlink("/tmp/to_other"));
	TRY(open_by_handle_at(d, NULL, O_RDONLY));
	TRY(unlink("/tmp/other"));
	TRY(close(f));
	TRY(open_by_handle_at(d, &h.head, O_RDONLY));
	h.head.handle_bytes = 0;
	TRY(open_by_handle_at(d, &h.head, O_RDONLY));
	h.head.handle_bytes = 200;
	TRY(open_by_handle_at(d, &h.head, O_RDONLY));
	TRY(name_to_handle_at(AT_FDCWD, "/tmp", &h.head, &mount_number, 0));
	h.head.handle_bytes = MAX_HANDLE_SZ;
	TRY(name_to_handle_at(AT_FDCWD, "", &h.head, &mount_number, 0));
	TRY(name_to_handle_at(-1, "x", &h.head, &mount_number, 0));
	TRY(name_to_handle_at(AT_FDCWD, "/tmp", NULL, &mount_number, 0));
	TRY(name_to_handle_at(AT_FDCWD, "/tmp", &h.head, NULL, 0));
	TRY(name_to_handle_at(AT_FDCWD, "/tmp", &h.head, &mount_number, 1 << 20));
	TRY(name_to_handle_at(AT_FDCWD, "/proc/stat", &h.head, &mount_number, 0));
	TRY(name_to_handle_at(d, "", &h.head, &mount_number, AT_EMPTY_PATH));
	DO(g = open_by_handle_at(d, &h.head, O_RDONLY | O_DIRECTORY));
	TRY(seteuid(1000));
	TRY(open_by_handle_at(d, &h.head, O_RDONLY));
	TRY(seteuid(0));
	close(d), close(g);
}

static void read_only(void)
{
	struct timeval times[2] = {{1, 0}, {1, 0}};
	TRY(mkdir("/tmp/ro", 0755));
	TRY(mount("tmpfs", "/tmp/ro", "tmpfs", 0, ""));
	int f = open("/tmp/ro/file", O_RDWR | O_CREAT, 0644), d;
	TRY(mkdir("/tmp/ro/d", 0755));
	TRY(close(f));
	TRY(mount(NULL, "/tmp/ro", NULL, MS_REMOUNT | MS_RDONLY, NULL));
	f = open("/tmp/ro/file", O_RDONLY), d = open("/tmp/ro", O_RDONLY);
	TRY(seteuid(1000));
	TRY(chown("/tmp/ro/file", 1, 1));
	TRY(fchown(f, 1, 1));
	TRY(lchown("/tmp/ro/file", 1, 1));
	TRY(fchownat(d, "file", 1, 1, 0));
	TRY(chmod("/tmp/ro/file", 0777));
	TRY(fchmod(f, 0777));
	TRY(fchmodat(d, "file", 0777, 0));
	TRY(utimes("/tmp/ro/file", times));
	TRY(futimes(f, times));
	TRY(futimens(f, NULL));
	TRY(setxattr("/tmp/ro/file", "trusted.x", "", 0, 0));
	TRY(removexattr("/tmp/ro/file", "trusted.x"));
	TRY(unlink("/tmp/ro/file"));
	TRY(unlink("/tmp/ro/absent"));
	TRY(rmdir("/tmp/ro/d"));
	TRY(mkdir("/tmp/ro/d", 0700));
	TRY(mkdir("/tmp/ro/new", 0700));
	TRY(symlink("x", "/tmp/ro/new"));
	TRY(link("/tmp/ro/file", "/tmp/ro/new"));
	TRY(seteuid(0));
	close(f), close(d);
	TRY(umount("/tmp/ro"));
	TRY(rmdir("/tmp/ro"));
}

static void offsets(void)
{
	char b[1024] = "x";
	const off_t most = INT64_MAX;
	off_t at = most - 1;
	struct iovec one = {b, 1024}, bad[2] = {{b, 10}, {(void *)0xffff800000000000, 10}};
	int f = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	int a = open("/tmp/file", O_RDWR | O_APPEND), o = open("/tmp/file", O_WRONLY);
	int g = open("/tmp/to", O_RDWR | O_CREAT | O_TRUNC, 0600), p = open("/proc/stat", O_RDONLY);
	TRY(pread(f, b, 1024, most));
	TRY(pwrite(f, b, 1024, most));
	TRY(pwrite(a, b, 1024, most));
	TRY(preadv(f, &one, 1, most));
	TRY(pwritev(f, &one, 1, most - 5));
	TRY(write(f, b, 100));
	TRY(lseek(f, most, SEEK_SET) == most);
	TRY(read(f, b, 1));
	TRY(write(f, b, 1));
	TRY(read(f, b, 0));
	TRY(lseek(f, 1, SEEK_CUR));
	TRY(lseek(f, most, SEEK_END));
	TRY(lseek(f, -101, SEEK_END));
	TRY(lseek(p, 0, SEEK_END));
	TRY(lseek(f, 0, SEEK_SET));
	TRY(sendfile(g, f, &at, 3));
	TRY(sendfile(g, f, NULL, -1));
	at = -1;
	TRY(sendfile(g, f, &at, 3));
	TRY(readv(f, bad, 2));
	TRY(writev(f, bad, 2));
	TRY(lseek(f, 0, SEEK_CUR));
	TRY(read(f, bad[1].iov_base, 10));
	TRY(read(o, bad[1].iov_base, 10));
	TRY(readv(o, bad, 2));
	TRY(read(f, b, -1));
	TRY(read(o, b, -1));
	TRY(mmap(0, 0, PROT_READ, MAP_PRIVATE, o, 0) == MAP_FAILED);
	say("%s", strerrorname_np(errno));
	close(f), close(a), close(o), close(g), close(p);
}

/* A file without a name gets one only if it was made without one. */
static void further_names(void)
{
	char path[64];
	struct stat facts;
	int f = MUST(open("/tmp/gone", O_CREAT | O_RDWR, 0600));
	MUST(unlink("/tmp/gone"));
#define LINKS(fd) do { snprintf(path, sizeof path, "/proc/self/fd/%d", (fd)); \
	TRY(linkat(AT_FDCWD, path, AT_FDCWD, "/tmp/name", AT_SYMLINK_FOLLOW)); \
	TRY(linkat((fd), "", AT_FDCWD, "/tmp/other", AT_EMPTY_PATH)); \
	MUST(fstat((fd), &facts)); say("%d names", (int)facts.st_nlink); unlink("/tmp/name"), unlink("/tmp/other"); } while (0)
	LINKS(f);
	int t = MUST(open("/tmp", O_TMPFILE | O_RDWR, 0600));
	LINKS(t);
	LINKS(t);
	int fixed = MUST(open("/tmp", O_TMPFILE | O_EXCL | O_RDWR, 0600));
	LINKS(fixed);
	/* A name that is taken leaves it as it is. */
	int late = MUST(open("/tmp", O_TMPFILE | O_RDWR, 0600));
	snprintf(path, sizeof path, "/proc/self/fd/%d", late);
	close(MUST(open("/tmp/taken", O_CREAT | O_RDWR, 0600)));
	TRY(linkat(AT_FDCWD, path, AT_FDCWD, "/tmp/taken", AT_SYMLINK_FOLLOW));
	TRY(linkat(f, "", AT_FDCWD, "/tmp/taken", AT_EMPTY_PATH));
	unlink("/tmp/taken");
	LINKS(late);
	close(f), close(t), close(fixed), close(late);
}

static void empty_paths(void)
{
	int d = open("/tmp", O_RDONLY), f = open("/tmp/file", O_RDONLY), p = open("/tmp/file", O_PATH);
	struct stat facts;
	struct timespec omitted[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
	char b[8];
	TRY(openat(d, "", O_RDONLY));
	TRY(openat(-1, "", O_RDONLY));
	TRY(openat(f, "", O_RDONLY));
	TRY(unlinkat(-1, "", 0));
	TRY(mkdirat(-1, "", 0700));
	TRY(fchmodat(-1, "", 0700, 0));
	TRY(fchownat(-1, "", 0, 0, 0));
	TRY(fchownat(p, "", -1, -1, AT_EMPTY_PATH));
	TRY(fchownat(-1, "", -1, -1, AT_EMPTY_PATH));
	TRY(faccessat(-1, "", R_OK, 0));
	TRY(fstatat(-1, "", &facts, 0));
	TRY(fstatat(-1, "", &facts, AT_EMPTY_PATH));
	TRY(fstatat(f, "", &facts, AT_EMPTY_PATH));
	TRY(readlinkat(f, "", b, 8));
	TRY(renameat(-1, "", -1, ""));
	TRY(linkat(-1, "", AT_FDCWD, "/tmp/new", 0));
	TRY(symlinkat("x", -1, ""));
	TRY(utimensat(-1, "", NULL, 0));
	TRY(utimensat(-1, "", omitted, -1));
	TRY(syscall(SYS_utimensat, f, NULL, NULL, AT_EMPTY_PATH));
	TRY(syscall(SYS_utimensat, p, NULL, NULL, 0));
	close(d), close(f), close(p);
}

static const unsigned may[5] = {0x02000001, 1 << 10};

static void lost(const char *what)
{
	char b[64];
	errno = 0;
	long r = getxattr("/tmp/file", "security.capability", b, sizeof b);
	say("%s: %ld %s", what, r, errno ? strerrorname_np(errno) : "");
	setxattr("/tmp/file", "security.capability", may, sizeof may, 0);
}

static void capabilities(void)
{
	int f = open("/tmp/file", O_RDWR | O_CREAT, 0755);
	lost("before");
	lost("after nothing");
	chmod("/tmp/file", 0700), lost("after chmod");
	utimes("/tmp/file", NULL), lost("after utimes");
	chown("/tmp/file", 1, 1), lost("after chown");
	chown("/tmp/file", -1, -1), lost("after chown to no user");
	write(f, "x", 0), lost("after a write of nothing");
	write(f, "x", 1), lost("after write");
	ftruncate(f, 0), lost("after ftruncate");
	truncate("/tmp/file", 5), lost("after truncate");
	fallocate(f, 0, 0, 10), lost("after fallocate");
	close(open("/tmp/file", O_RDWR)), lost("after open");
	close(open("/tmp/file", O_RDWR | O_TRUNC)), lost("after open with O_TRUNC");
	close(f);
}

int main(void)
{
	handles();
	read_only();
	offsets();
	further_names();
	empty_paths();
	capabilities();
	unlink("/tmp/file");
	unlink("/tmp/to");
	return 0;
}
