/* Extended attributes of files in memory. */
#include "say.h"
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/xattr.h>

static int mount_tmpfs(void) { return mount("none", "/tmp/x", "tmpfs", 0, 0); }

static void say_list(const char *path)
{
	char b[1000];
	ssize_t n = llistxattr(path, b, sizeof b);
	say("%s has %zd bytes of names", path, n);
	for (ssize_t at = 0; at < n; at += strlen(b + at) + 1)
		say("  %s", b + at);
}

/* What sockets tell of their protocol. */
static void sockets(void)
{
	static const int kinds[][3] = { { AF_UNIX, SOCK_STREAM }, { AF_UNIX, SOCK_DGRAM }, { AF_UNIX, SOCK_SEQPACKET },
		{ AF_INET, SOCK_STREAM }, { AF_INET, SOCK_DGRAM }, { AF_INET, SOCK_RAW, IPPROTO_ICMP },
		{ AF_INET6, SOCK_STREAM }, { AF_INET6, SOCK_DGRAM }, { AF_INET6, SOCK_RAW, IPPROTO_ICMPV6 },
		{ AF_NETLINK, SOCK_RAW, 0 } };
	char b[100], path[40];
	static const char name[] = "system.sockprotoname";
	for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
		int s = MUST(socket(kinds[i][0], kinds[i][1], kinds[i][2]));
		memset(b, 'b', sizeof b);
		TRY(fgetxattr(s, name, b, sizeof b));
		say("%d %d: %s", kinds[i][0], kinds[i][1], b);
		TRY(fgetxattr(s, name, 0, 0));
		TRY(fgetxattr(s, name, b, 3));
		TRY(fgetxattr(s, name, (void *)8, 30));
		snprintf(path, sizeof path, "/proc/self/fd/%d", s);
		TRY(getxattr(path, name, b, sizeof b));
		TRY(fsetxattr(s, name, "x", 1, 0));
		TRY(fremovexattr(s, name));
		TRY(flistxattr(s, b, sizeof b));
		say("%s", b);
		TRY(flistxattr(s, 0, 0));
		TRY(flistxattr(s, b, 5));
		TRY(fgetxattr(s, "system.a", b, sizeof b));
		TRY(fgetxattr(s, "user.a", b, sizeof b));
		close(s);
	}
	TRY(getxattr("/tmp", name, b, sizeof b));
}

int main(void)
{
	char b[300], long_name[300];
	static char large[70000];
	memset(b, 'b', sizeof b);
	memset(long_name, 'n', sizeof long_name);
	memcpy(long_name, "trusted.", 8);
	sockets();
	/* A tmpfs, which stock Linux may not have as its root. */
	mkdir("/tmp/x", 0755);
	TRY(mount_tmpfs());
	int f = MUST(open("/tmp/x/f", O_RDWR | O_CREAT, 0600)), path = MUST(open("/tmp/x/f", O_PATH));
	MUST(symlink("f", "/tmp/x/l"));
	MUST(symlink("none", "/tmp/x/dangling"));
	MUST(mkfifo("/tmp/x/p", 0600));
	int p[2];
	MUST(pipe(p));
	static const char *names[] = { "user.a", "user.", "user", "trusted.a", "trusted.", "trusted", "security.a",
		"security.", "system.a", "other.a", "a", "" };
	for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
		say("%s", names[i]);
		TRY(getxattr("/tmp/x/f", names[i], b, 10));
		TRY(setxattr("/tmp/x/f", names[i], "value", 5, 0));
		TRY(getxattr("/tmp/x/f", names[i], b, 10));
		TRY(removexattr("/tmp/x/f", names[i]));
		TRY(removexattr("/tmp/x/f", names[i]));
		TRY(lsetxattr("/tmp/x/l", names[i], "value", 5, 0));
		TRY(lgetxattr("/tmp/x/l", names[i], b, 10));
		TRY(setxattr("/tmp/x/p", names[i], "value", 5, 0));
		TRY(setxattr("/tmp/x", names[i], "value", 5, 0));
		TRY(getxattr("/proc/self/status", names[i], b, 10));
		TRY(setxattr("/proc/self/status", names[i], b, 10, 0));
	}
	say_list("/tmp/x");
	say_list("/tmp/x/f");
	say_list("/tmp/x/l");
	say_list("/tmp/x/p");
	say_list("/proc/self/status");
	TRY(setxattr("/tmp/x/f", "trusted.one", "1", 1, XATTR_REPLACE));
	TRY(setxattr("/tmp/x/f", "trusted.one", "1", 1, XATTR_CREATE));
	TRY(setxattr("/tmp/x/f", "trusted.one", "12", 2, XATTR_CREATE));
	TRY(setxattr("/tmp/x/f", "trusted.one", "12", 2, XATTR_REPLACE));
	TRY(setxattr("/tmp/x/f", "trusted.one", "12", 2, XATTR_CREATE | XATTR_REPLACE));
	TRY(setxattr("/tmp/x/f", "trusted.two", "12", 2, XATTR_CREATE | XATTR_REPLACE));
	TRY(setxattr("/tmp/x/f", "trusted.two", "12", 2, 4));
	TRY(setxattr("/tmp/x/f", "trusted.empty", 0, 0, 0));
	TRY(getxattr("/tmp/x/f", "trusted.empty", b, 10));
	TRY(fsetxattr(f, "security.three", "123", 3, 0));
	TRY(fsetxattr(path, "trusted.four", "1234", 4, 0));
	TRY(fgetxattr(path, "trusted.one", b, 2));
	TRY(fgetxattr(f, "trusted.one", b, 2));
	say("%.3s", b);
	TRY(fgetxattr(f, "trusted.one", b, 1));
	TRY(fgetxattr(f, "trusted.one", 0, 0));
	TRY(fgetxattr(f, "trusted.one", (void *)8, 10));
	TRY(fgetxattr(f, "trusted.none", (void *)8, 10));
	TRY(fgetxattr(f, (void *)8, b, 10));
	TRY(fgetxattr(999, "trusted.one", b, 10));
	TRY(fsetxattr(f, "trusted.one", (void *)8, 10, 0));
	say_list("/tmp/x/f");
	TRY(flistxattr(f, b, 10));
	TRY(flistxattr(f, 0, 0));
	TRY(flistxattr(f, (void *)8, 100));
	TRY(flistxattr(path, b, 100));
	TRY(flistxattr(999, b, 100));
	TRY(listxattr("/tmp/x/none", b, 100));
	TRY(listxattr("/tmp/x/dangling", b, 100));
	TRY(llistxattr("/tmp/x/dangling", b, 100));
	TRY(getxattr("/tmp/x/none", "", b, 100));
	TRY(setxattr("/tmp/x/none", "", b, 100, 9));
	TRY(lremovexattr("/tmp/x/l", "trusted.none"));
	TRY(fremovexattr(f, "trusted.two"));
	TRY(fremovexattr(f, "trusted.one"));
	say_list("/tmp/x/f");
	long_name[255] = 0;
	TRY(fsetxattr(f, long_name, "x", 1, 0) || 0);
	TRY(fremovexattr(f, long_name) || 0);
	long_name[255] = 'n'; long_name[256] = 0;
	TRY(fsetxattr(f, long_name, "x", 1, 0));
	TRY(fgetxattr(f, long_name, b, 1));
	TRY(fsetxattr(f, "trusted.large", large, 65536, 0));
	TRY(fgetxattr(f, "trusted.large", large, 65535));
	TRY(fgetxattr(f, "trusted.large", large, 70000));
	TRY(fsetxattr(f, "trusted.large", large, 65537, 0));
	TRY(fremovexattr(f, "trusted.large"));
	unsigned cap[6] = { 0x02000001, 1, 0, 0, 0, 0 };
	TRY(fsetxattr(f, "security.capability", cap, 19, 0));
	TRY(fsetxattr(f, "security.capability", cap, 24, 0));
	TRY(fsetxattr(f, "security.capability", cap, 20, 0));
	TRY(fgetxattr(f, "security.capability", b, 100));
	HOLDS(!memcmp(b, cap, 20));
	cap[0] = 0x01000000;
	TRY(fsetxattr(f, "security.capability", cap, 12, 0));
	TRY(fremovexattr(f, "security.capability"));
	TRY(fgetxattr(p[0], "user.a", b, 10));
	TRY(flistxattr(p[0], b, 10));
	/* Another name, and a copy of none of them. */
	MUST(link("/tmp/x/f", "/tmp/x/g"));
	say_list("/tmp/x/g");
	close(f);
	MUST(unlink("/tmp/x/f"));
	MUST(rename("/tmp/x/g", "/tmp/x/f"));
	say_list("/tmp/x/f");
	close(MUST(open("/tmp/x/g", O_RDWR | O_CREAT, 0600)));
	say_list("/tmp/x/g");
	return 0;
}
