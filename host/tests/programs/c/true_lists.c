/* Access lists: what they are refused for, what they grant, and how they go with permission bits and new files. */
#include "say.h"
#include <grp.h>
#include <sys/mount.h>
#include <sys/xattr.h>

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"
enum { OWNER = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };

struct entry {
	uint16_t tag, rights;
	uint32_t id;
};
static struct {
	uint32_t version;
	struct entry entries[600];
} list = {2};

/* Gives a file a list: "tag rights id" three numbers for each entry, up to a 0. */
#define GIVE(path, name, ...) give(path, name, (int[]){__VA_ARGS__, 0})
static void give(const char *path, const char *name, const int *numbers)
{
	int n = 0;
	for (; numbers[3 * n]; n++)
		list.entries[n] = (struct entry){numbers[3 * n], numbers[3 * n + 1], numbers[3 * n + 2]};
	errno = 0;
	int r = setxattr(path, name, &list, 4 + 8 * n, 0);
	say("%s gets %d entries as %s: %d %s", path, n, name, r, errno ? strerrorname_np(errno) : "");
}

static void show(const char *path, const char *name)
{
	struct stat facts;
	char text[256] = "";
	stat(path, &facts);
	errno = 0;
	long n = getxattr(path, name, &list, sizeof list);
	for (int i = 0, at = 0; i < (n - 4) / 8 && i < 10; i++)
		at += sprintf(text + at, " %d:%d:%d", list.entries[i].tag, list.entries[i].rights,
			      (int)list.entries[i].id);
	say("%s has mode %o and as %s %ld %s%s", path, facts.st_mode, name, n,
	    errno ? strerrorname_np(errno) : "", text);
	list.version = 2;
}

static void may(const char *path, int uid, int gid, int other)
{
	gid_t others[1] = {other};
	pid_t child = fork();
	if (!child) {
		setgroups(other != 0, others), setresgid(gid, gid, gid), setresuid(uid, uid, uid);
		say("user %d of %d, %d:%s%s%s", uid, gid, other, access(path, R_OK) ? "" : " reads",
		    access(path, W_OK) ? "" : " writes", access(path, X_OK) ? "" : " runs");
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static void names(const char *path)
{
	char all[256] = "", text[256] = "";
	long n = listxattr(path, all, sizeof all);
	for (int i = 0, at = 0; i < n; i += strlen(all + i) + 1)
		at += sprintf(text + at, " %s", all + i);
	say("%s has%s", path, text);
}

static void make(const char *path, int mode, int mask)
{
	umask(mask);
	close(open(path, O_WRONLY | O_CREAT | O_EXCL, mode));
	show(path, ACCESS);
	umask(022);
}

int main(void)
{
	mkdir("/tmp/lists", 0755);
	TRY(mount("tmpfs", "/tmp/lists", "tmpfs", 0, ""));
	TRY(chdir("/tmp/lists"));
	umask(022);
	close(open("f", O_WRONLY | O_CREAT, 0640));
	TRY(chown("f", 1000, 2000));
	symlink("f", "l");
	show("f", ACCESS);
	names("f");
	GIVE("f", ACCESS, OWNER, 6, -1, USER, 7, 5, USER, 0, 6, GROUP_OBJ, 4, -1, GROUP, 6, 30, MASK, 5, -1, OTHER, 1, -1);
	show("f", ACCESS);
	names("f");
	may("f", 1000, 9, 0), may("f", 5, 9, 0), may("f", 6, 2000, 0), may("f", 9, 2000, 0), may("f", 9, 30, 0);
	may("f", 9, 9, 30), may("f", 9, 2000, 30), may("f", 9, 9, 0);
	TRY(chmod("f", 0620));
	show("f", ACCESS);
	may("f", 5, 9, 0), may("f", 9, 2000, 0), may("f", 9, 30, 0), may("f", 9, 9, 0);
	TRY(chmod("f", 0607));
	may("f", 5, 9, 0), may("f", 9, 30, 0), may("f", 9, 9, 0);
	TRY(chmod("f", 02777));
	TRY(removexattr("f", ACCESS));
	show("f", ACCESS);
	TRY(removexattr("f", ACCESS));
	GIVE("f", ACCESS, OWNER, 7, -1, GROUP_OBJ, 5, -1, OTHER, 4, -1);
	show("f", ACCESS);
	GIVE("f", ACCESS, OWNER, 6, -1, GROUP_OBJ, 6, -1, MASK, 4, -1, OTHER, 0, -1);
	show("f", ACCESS);
	GIVE("f", ACCESS, 0, 0, 0);
	TRY(setxattr("f", ACCESS, &list, 4, 0));
	show("f", ACCESS);
	/* What is no list. */
	GIVE("f", ACCESS, OWNER, 6, -1, USER, 7, 5, GROUP_OBJ, 4, -1, OTHER, 1, -1);
	GIVE("f", ACCESS, OWNER, 8, -1, GROUP_OBJ, 4, -1, OTHER, 1, -1);
	GIVE("f", ACCESS, GROUP_OBJ, 4, -1, OTHER, 1, -1);
	GIVE("f", ACCESS, OWNER, 4, -1, GROUP_OBJ, 4, -1);
	GIVE("f", ACCESS, OWNER, 4, -1, OTHER, 4, -1, GROUP_OBJ, 4, -1);
	GIVE("f", ACCESS, OWNER, 4, -1, 3, 4, -1, OTHER, 4, -1);
	GIVE("f", ACCESS, OWNER, 4, -1, OWNER, 4, -1, GROUP_OBJ, 4, -1, OTHER, 4, -1);
	list.version = 1;
	GIVE("f", ACCESS, OWNER, 7, -1, GROUP_OBJ, 5, -1, OTHER, 4, -1);
	list.version = 2;
	TRY(setxattr("f", ACCESS, &list, 3, 0));
	TRY(setxattr("f", ACCESS, &list, 13, 0));
	GIVE("f", DEFAULT, OWNER, 7, -1, GROUP_OBJ, 5, -1, OTHER, 4, -1);
	TRY(removexattr("f", DEFAULT));
	TRY(setxattr("f", "system.other", "", 0, 0));
	TRY(lgetxattr("l", ACCESS, &list, sizeof list));
	TRY(lsetxattr("l", ACCESS, &list, 4, 0));
	TRY(getxattr("/proc/stat", ACCESS, &list, sizeof list));
	TRY(seteuid(9));
	GIVE("f", ACCESS, OWNER, 7, -1, GROUP_OBJ, 5, -1, OTHER, 4, -1);
	TRY(seteuid(0));
	TRY(seteuid(1000));
	GIVE("f", ACCESS, OWNER, 7, -1, GROUP_OBJ, 5, -1, OTHER, 4, -1);
	TRY(seteuid(0));
	show("f", ACCESS);
	/* What is made in a directory. */
	TRY(mkdir("d", 0755));
	GIVE("d", DEFAULT, OWNER, 7, -1, USER, 7, 5, GROUP_OBJ, 5, -1, MASK, 7, -1, OTHER, 0, -1);
	show("d", DEFAULT);
	show("d", ACCESS);
	names("d");
	make("d/a", 0666, 022);
	make("d/b", 0640, 077);
	TRY(mkdir("d/e", 0777));
	show("d/e", ACCESS);
	show("d/e", DEFAULT);
	TRY(symlink("x", "d/l"));
	TRY(mknod("d/p", S_IFIFO | 0666, 0));
	show("d/p", ACCESS);
	GIVE("d", DEFAULT, OWNER, 7, -1, GROUP_OBJ, 5, -1, OTHER, 1, -1);
	make("d/c", 0666, 077);
	TRY(setxattr("d", DEFAULT, "", 0, 0));
	show("d", DEFAULT);
	make("d/g", 0666, 022);
	/* A directory that only its list opens. */
	TRY(chmod("d", 0700));
	GIVE("d", ACCESS, OWNER, 7, -1, USER, 7, 5, GROUP_OBJ, 0, -1, MASK, 7, -1, OTHER, 0, -1);
	TRY(seteuid(5));
	TRY(access("d/a", F_OK));
	TRY(open("d/new", O_WRONLY | O_CREAT, 0600) > 0);
	TRY(unlink("d/new"));
	TRY(link("d/a", "d/h"));
	TRY(seteuid(0));
	TRY(seteuid(7));
	TRY(open("d/new", O_WRONLY | O_CREAT, 0600));
	TRY(unlink("d/a"));
	TRY(seteuid(0));
	TRY(chdir("/"));
	TRY(umount2("/tmp/lists", MNT_DETACH));
	rmdir("/tmp/lists");
	return 0;
}
