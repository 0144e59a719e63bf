/* Works in a folder that was there before: what it shows is the same wherever the folder is. Arguments: the folder, and `drop`
 * where caches are to be dropped now and then. */
#include "say.h"
#include <dirent.h>
#include <sys/sendfile.h>

static char *names[4096];
static int count;

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The entries of a folder, with what stat says of them. */
static void list(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	count = 0;
	say("%s: %s", path, folder ? "open" : strerrorname_np(errno));
	if (!folder)
		return;
	while ((entry = readdir(folder)) && count < 4096)
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			names[count++] = strdup(entry->d_name);
	qsort(names, count, sizeof *names, by_name);
	for (int i = 0; i < count; i++) {
		struct stat status;
		char target[256] = "", full[512];
		snprintf(full, sizeof full, "%s/%s", path, names[i]);
		if (lstat(full, &status) < 0) {
			say("  %s: %s", names[i], strerrorname_np(errno));
			continue;
		}
		if (S_ISLNK(status.st_mode))
			readlink(full, target, sizeof target - 1);
		if (count < 20 || i % 100 == 0)
			say("  %s %o %d.%d %ld %s", names[i], status.st_mode, status.st_uid, status.st_gid,
			    S_ISDIR(status.st_mode) ? 0 : (long)status.st_size, target);
		free(names[i]);
	}
	say("  %d entries", count);
	closedir(folder);
}

static void show(const char *path)
{
	char text[64] = "";
	int fd = open(path, O_RDONLY);
	long len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	say("%s: %s %ld %s", path, len < 0 ? strerrorname_np(errno) : "read", len, text);
	if (fd >= 0)
		close(fd);
}

static unsigned sum(const char *path)
{
	static unsigned char bytes[70000];
	unsigned sum = 0;
	int fd = open(path, O_RDONLY);
	long len;
	while ((len = read(fd, bytes, sizeof bytes)) > 0)
		for (long i = 0; i < len; i++)
			sum = sum * 31 + bytes[i];
	close(fd);
	return sum;
}

static void put(const char *path, int flags, long at, const char *text)
{
	int fd = open(path, flags, 0644);
	long put = fd < 0 ? -1 : pwrite(fd, text, strlen(text), at);
	say("write %s: %s", path, put < 0 ? strerrorname_np(errno) : "ok");
	if (fd >= 0)
		close(fd);
}

static int drops;

static void drop_caches(void)
{
	int knob = drops ? MUST(open("/proc/sys/vm/drop_caches", O_WRONLY)) : -1;
	if (drops && write(knob, "3", 1) != 1)
		say("caches stay");
	close(knob);
}

int main(int argc, char **argv)
{
	struct stat status;
	drops = argc == 3;
	if (argc < 2 || chdir(argv[1]) < 0)
		return 1;
	say("- one by one");
	TRY(access("absent", F_OK));
	TRY(access("text", F_OK));
	TRY(access("text/x", F_OK));
	TRY(access("deep/er/leaf", R_OK));
	show("text");
	show("link");
	show("dangling");
	show("deep");
	show("deep/up/text");
	say("- folders");
	list(".");
	list("deep");
	list("many");
	list("text");
	list("nothing");
	say("- contents");
	say("sum of big %u", sum("big"));
	int fd = MUST(open("big", O_RDONLY));
	unsigned char *map = MUST(mmap(0, 300000, PROT_READ, MAP_PRIVATE, fd, 4096));
	say("in the mapping %d %d %d", map[0], map[100000], map[299999]);
	munmap(map, 300000);
	map = MUST(mmap(0, 300000, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
	map[5000] = 77;
	say("private %d, in the file still %d", map[5000], pread(fd, &status, 1, 5000) == 1 ? *(unsigned char *)&status : -1);
	munmap(map, 300000);
	TRY(lseek(fd, 0, SEEK_DATA));
	TRY(lseek(fd, 0, SEEK_HOLE) == lseek(fd, 0, SEEK_END));
	close(fd);
	say("- changes of files");
	put("text", O_WRONLY, 3, "XYZ");
	show("text");
	put("text", O_WRONLY | O_APPEND, 0, " and more");
	show("text");
	put("small", O_WRONLY | O_TRUNC, 2, "after");
	fd = MUST(open("small", O_RDONLY));
	char bytes[8] = "????";
	say("read %ld: %d %d %c", (long)read(fd, bytes, 7), bytes[0], bytes[1], bytes[2]);
	close(fd);
	put("big", O_RDWR, 4096 * 3 + 100, "in the middle");
	say("sum of big %u", sum("big"));
	TRY(truncate("big", 100001));
	TRY(truncate("big", 250000));
	say("sum of big, cut and made longer, %u", sum("big"));
	fd = MUST(open("other", O_RDWR));
	TRY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 20000));
	say("sum of other, with a hole, %u", sum("other"));
	map = MUST(mmap(0, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	map[60000]++;
	munmap(map, 100000);
	say("sum of other, stored to, %u", sum("other"));
	close(fd);
	fd = MUST(open("third", O_RDONLY));
	int out = MUST(open("copy", O_WRONLY | O_CREAT | O_EXCL, 0600));
	TRY(sendfile(out, fd, 0, 1 << 20));
	close(out);
	close(fd);
	TRY(sum("copy") == sum("third"));
	TRY(chmod("third", 0400));
	TRY(stat("third", &status));
	say("third %o %ld", status.st_mode, (long)status.st_size);
	say("- changes of folders");
	TRY(mkdir("deep", 0755));
	TRY(mkdir("new", 0755));
	TRY(open("text", O_CREAT | O_EXCL | O_WRONLY, 0644));
	TRY(symlink("x", "link"));
	TRY(link("text", "small"));
	TRY(link("text", "hard"));
	TRY(stat("hard", &status));
	say("%d names", (int)status.st_nlink);
	TRY(unlink("small"));
	TRY(access("small", F_OK));
	put("small", O_WRONLY | O_CREAT | O_EXCL, 0, "anew");
	show("small");
	TRY(rmdir("deep"));
	TRY(rmdir("deep/er"));
	TRY(unlink("deep/er/leaf"));
	TRY(rmdir("deep/er"));
	TRY(mkdir("deep/er", 0700));
	list("deep/er");
	TRY(rename("many", "moved"));
	TRY(access("many", F_OK));
	show("moved/entry-0007");
	TRY(unlink("moved/entry-0008"));
	TRY(rename("moved/entry-0009", "moved/entry-0010"));
	list("moved");
	TRY(mkdir("many", 0755));
	list("many");
	TRY(rename("new", "moved"));
	TRY(rename("moved", "new"));
	TRY(rename("copy", "big"));
	TRY(rename("link", "dangling"));
	TRY(rename("absent", "x"));
	TRY(renameat2(AT_FDCWD, "moved/entry-0020", AT_FDCWD, "moved/entry-0021", RENAME_EXCHANGE));
	TRY(renameat2(AT_FDCWD, "moved/entry-0022", AT_FDCWD, "hard", RENAME_EXCHANGE));
	TRY(renameat2(AT_FDCWD, "moved/entry-0023", AT_FDCWD, "nothing", RENAME_EXCHANGE));
	drop_caches();
	show("moved/entry-0020");
	show("moved/entry-0021");
	show("moved/entry-0022");
	show("hard");
	list("moved/entry-0023");
	show("nothing");
	show("moved/entry-0008");
	show("moved/entry-0010");
	TRY(rename("new", "new/inside"));
	list(".");
	return 0;
}
