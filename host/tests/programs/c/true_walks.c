/* Where openat2 lets a path go. */
#include "say.h"
#include <linux/openat2.h>
#include <sys/mount.h>

static int open2(int dir, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
	struct open_how how = { flags, mode, resolve };
	return syscall(SYS_openat2, dir, path, &how, sizeof how);
}

static const struct { const char *name; uint64_t bits; } rules[] = {
	{ "NONE", 0 }, { "NO_XDEV", RESOLVE_NO_XDEV }, { "NO_MAGICLINKS", RESOLVE_NO_MAGICLINKS },
	{ "NO_SYMLINKS", RESOLVE_NO_SYMLINKS }, { "BENEATH", RESOLVE_BENEATH }, { "IN_ROOT", RESOLVE_IN_ROOT },
	{ "BENEATH|NO_SYMLINKS", RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS },
	{ "IN_ROOT|NO_XDEV", RESOLVE_IN_ROOT | RESOLVE_NO_XDEV },
};

static const char *paths[] = { "f", "d/f", "d/../f", "..", "../t/f", "d/../../t/f", "/t/f", "/f", "/", ".", "d/..",
	"to_f", "to_abs", "to_up", "to_d/f", "to_d", "abs_d/f", "loop", "dangling", "to_root", "m", "m/x", "m/..", "m/../f",
	"to_m/x", "none", "f/x", "", "self", "self/f", "magic", "d/to_f_up", "d/in_root", "d/./../d/f" };

static void walks(int dir)
{
	for (int r = 0; r < (int)(sizeof rules / sizeof *rules); r++) {
		say("%s", rules[r].name);
		for (int p = 0; p < (int)(sizeof paths / sizeof *paths); p++) {
			errno = 0;
			int f = open2(dir, paths[p], O_RDONLY, 0, rules[r].bits);
			if (f < 0) {
				say("  %s: %s", paths[p], strerrorname_np(errno));
				continue;
			}
			char b[16] = "", at[64], to[128] = "";
			if (read(f, b, 15) < 0)
				strcpy(b, "directory");
			snprintf(at, sizeof at, "/proc/self/fd/%d", f);
			readlink(at, to, sizeof to - 1);
			say("  %s: %s %s", paths[p], b, to);
			close(f);
		}
	}
}

static void put(const char *path, const char *text)
{
	int f = MUST(open(path, O_WRONLY | O_CREAT, 0600));
	MUST(write(f, text, strlen(text)));
	close(f);
}

/* A directory that comes and goes while a process walks through it and up again: never out of the
   root. */
static void moved_away(void)
{
	mkdir("/t/out", 0755);
	mkdir("/t/out/root", 0755);
	mkdir("/t/out/root/x", 0755);
	put("/t/out/secret", "secret");
	int dir = MUST(open("/t/out/root", O_PATH | O_DIRECTORY)), wrong = 0;
	pid_t mover = MUST(fork());
	if (mover == 0)
		for (;;) {
			rename("/t/out/root/x", "/t/out/x");
			rename("/t/out/x", "/t/out/root/x");
		}
	for (int i = 0; i < 20000; i++) {
		static const uint64_t how[] = { RESOLVE_BENEATH, RESOLVE_IN_ROOT };
		static const char *ways[] = { "x/../secret", "x/../secret/none", "x/../x/.." };
		int f = open2(dir, ways[i % 3], O_PATH, 0, how[i / 3 % 2]);
		struct stat st, own;
		if (f >= 0 && (i % 3 != 2 || fstat(f, &st) || fstat(dir, &own) || st.st_ino != own.st_ino))
			wrong++;
		else if (f < 0 && errno != ENOENT && errno != EAGAIN)
			wrong++;
		if (f >= 0)
			close(f);
	}
	kill(mover, SIGKILL);
	MUST(waitpid(mover, 0, 0));
	say("%d walks went wrong", wrong);
	close(dir);
}

/* Directories whose path is longer than any may be. */
static void too_deep(void)
{
	static char room[8192];
	const char *name = "twenty_nine_letters_as_a_name";
	for (int i = 0; i < 160; i++) {
		MUST(mkdir(name, 0700));
		MUST(chdir(name));
		if (i == 130)
			TRY(syscall(SYS_getcwd, room, sizeof room) == 131 * 30 + 3);
	}
	TRY(syscall(SYS_getcwd, room, sizeof room));
	HOLDS(getcwd(room, sizeof room) != 0 && strlen(room) == 160 * 30 + 2);
	for (int i = 0; i < 160; i++) {
		MUST(chdir(".."));
		MUST(rmdir(name));
	}
	pid_t child = MUST(fork());
	if (child == 0) {
		MUST(chroot("d"));
		TRY(syscall(SYS_getcwd, room, sizeof room));
		say("%s", room);
		_exit(0);
	}
	waitpid(child, 0, 0);
	MUST(mkdir("gone", 0700));
	MUST(chdir("gone"));
	MUST(rmdir("/t/gone"));
	TRY(syscall(SYS_getcwd, room, sizeof room));
	MUST(chdir("/t"));
}

/* Directories that move between the top of a deep tree and its bottom: never into themselves. */
static void deep_moves(void)
{
	MUST(mkdir("/t/deep", 0755));
	int top = MUST(open("/t/deep", O_PATH | O_DIRECTORY)), bottom = top;
	for (int level = 0; level < 3000; level++) {
		MUST(mkdirat(bottom, "x", 0755));
		int next = MUST(openat(bottom, "x", O_PATH | O_DIRECTORY));
		if (bottom != top)
			close(bottom);
		bottom = next;
	}
	MUST(mkdirat(top, "other", 0755));
	TRY(renameat(AT_FDCWD, "/t/deep", bottom, "in"));
	TRY(renameat(top, "x", bottom, "in"));
	TRY(renameat(top, "other", bottom, "in"));
	TRY(renameat(bottom, "in", top, "x"));
	TRY(renameat2(bottom, "in", top, "x", RENAME_EXCHANGE));
	TRY(renameat2(top, "x", bottom, "in", RENAME_EXCHANGE));
	TRY(renameat(bottom, "in", top, "other"));
	close(bottom);
	close(top);
}

int main(void)
{
	mkdir("/t", 0755);
	mkdir("/t/d", 0755);
	mkdir("/t/m", 0755);
	put("/t/f", "file");
	put("/t/d/f", "inner");
	MUST(mount("none", "/t/m", "tmpfs", 0, 0));
	put("/t/m/x", "mounted");
	symlink("f", "/t/to_f");
	symlink("/t/f", "/t/to_abs");
	symlink("../t/f", "/t/to_up");
	symlink("d", "/t/to_d");
	symlink("/t/d", "/t/abs_d");
	symlink("loop", "/t/loop");
	symlink("nowhere", "/t/dangling");
	symlink("/", "/t/to_root");
	symlink("m", "/t/to_m");
	symlink("/proc/self/cwd", "/t/self");
	symlink("../f", "/t/d/to_f_up");
	symlink("/d/f", "/t/d/in_root");
	int own = MUST(open("/t/f", O_RDONLY));
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", own);
	symlink(path, "/t/magic");
	MUST(chdir("/t"));
	int dir = MUST(open("/t", O_PATH | O_DIRECTORY));
	walks(dir);
	TRY(open2(own, "f", O_RDONLY, 0, RESOLVE_BENEATH));
	TRY(open2(own, "/f", O_RDONLY, 0, RESOLVE_IN_ROOT));
	TRY(open2(999, "/t/f", O_RDONLY, 0, RESOLVE_IN_ROOT));
	TRY(open2(999, "/t/f", O_RDONLY, 0, RESOLVE_BENEATH));
	DO(open2(AT_FDCWD, "/f", O_RDONLY, 0, RESOLVE_IN_ROOT));
	DO(open2(AT_FDCWD, "f", O_RDONLY, 0, RESOLVE_BENEATH));
	/* A link itself. */
	DO(open2(dir, "to_f", O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_SYMLINKS));
	TRY(open2(dir, "to_f", O_NOFOLLOW, 0, RESOLVE_NO_SYMLINKS));
	TRY(open2(dir, "to_d/f", O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_SYMLINKS));
	/* What is made. */
	DO(open2(dir, "new", O_WRONLY | O_CREAT, 0600, RESOLVE_BENEATH));
	TRY(open2(dir, "../new", O_WRONLY | O_CREAT, 0600, RESOLVE_BENEATH));
	DO(open2(dir, "../newer", O_WRONLY | O_CREAT, 0600, RESOLVE_IN_ROOT));
	TRY(access("/t/newer", F_OK));
	TRY(open2(dir, "to_up", O_WRONLY | O_CREAT | O_TRUNC, 0600, RESOLVE_BENEATH));
	TRY(open2(dir, "dangling", O_WRONLY | O_CREAT, 0600, RESOLVE_NO_SYMLINKS));
	DO(open2(dir, "d", O_WRONLY | O_TMPFILE, 0600, RESOLVE_BENEATH));
	TRY(open2(dir, "..", O_WRONLY | O_TMPFILE, 0600, RESOLVE_BENEATH));
	DO(open("d", O_WRONLY | O_TMPFILE, 0600));
	TRY(open("d", O_WRONLY | O_TMPFILE | O_CREAT, 0600));
	TRY(open("d", O_RDONLY | O_TMPFILE, 0600));
	symlink("made/", "to_slash");
	TRY(open("to_slash", O_RDWR | O_CREAT, 0600));
	TRY(open2(dir, "to_slash", O_RDWR | O_CREAT, 0600, 0));
	TRY(access("made", F_OK));
	too_deep();
	/* What is no sense. */
	TRY(open2(dir, "f", O_RDONLY, 0, 64));
	TRY(open2(dir, "f", O_RDONLY, 0, RESOLVE_BENEATH | RESOLVE_IN_ROOT));
	TRY(open2(dir, "f", O_RDONLY, 0600, 0));
	TRY(open2(dir, "f", O_RDONLY | O_CREAT, 010000, 0));
	TRY(open2(dir, "f", 1ull << 40, 0, 0));
	TRY(open2(dir, "f", 1 << 30, 0, 0));
	TRY(open2(dir, "f", O_PATH | O_TRUNC, 0, 0));
	TRY(open2(dir, "f", O_PATH | O_RDWR, 0, 0));
	TRY(open2(dir, "f", O_RDWR | O_TRUNC, 0, RESOLVE_CACHED));
	TRY(open2(dir, "f", O_RDWR | O_CREAT, 0600, RESOLVE_CACHED));
	struct { struct open_how how; uint64_t more[10]; } large = { 0 };
	DO(syscall(SYS_openat2, dir, "f", &large, sizeof large));
	large.more[9] = 1;
	TRY(syscall(SYS_openat2, dir, "f", &large, sizeof large));
	TRY(syscall(SYS_openat2, dir, "f", &large, 23));
	TRY(syscall(SYS_openat2, dir, "f", &large, 0));
	TRY(syscall(SYS_openat2, dir, "f", &large, 4097));
	TRY(syscall(SYS_openat2, dir, "f", (void *)8, 24));
	TRY(syscall(SYS_openat2, dir, (void *)8, &large, 24));
	moved_away();
	deep_moves();
	umount("/t/m");
	return 0;
}
