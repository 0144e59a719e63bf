/* Every knob of /proc/sys. Without a word: writes odd values to each, then the value that it had, and says which do not
   take that. With one: prints NAME=VALUE for each that has a value of one word, as the boot line takes it. */
#include "say.h"
#include <ftw.h>

static int listing, files, knobs;

/* These act when they are written, or end the guest. */
static int acts(const char *path)
{
	return strstr(path, "compact_memory") || strstr(path, "drop_caches");
}

static long load(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY);
	long n = fd < 0 ? -1 : read(fd, text, room - 1);
	close(fd);
	text[n < 0 ? 0 : n] = 0;
	return n;
}

static int put(const char *path, const char *value, size_t bytes)
{
	int fd = open(path, O_WRONLY);
	ssize_t n = fd < 0 ? -1 : write(fd, value, bytes);
	int error = n < 0 ? errno : 0;
	close(fd);
	return error;
}

static int look(const char *path, const struct stat *s, int kind, struct FTW *where)
{
	static char value[4096], now[4096];
	if (kind != FTW_F)
		return 0;
	files++;
	long n = load(path, value, sizeof value);
	if (n < 0 && s->st_mode & 0444)
		say("%s cannot be read: %s", path, strerrorname_np(errno));
	if (!(s->st_mode & 0222)) {
		if (put(path, value, n) == 0)
			say("%s can be written, though its mode is %o", path, s->st_mode & 07777);
		return 0;
	}
	knobs++;
	if (n > 0 && value[n - 1] == '\n')
		value[--n] = 0;
	if (listing) {
		if (n > 0 && !acts(path) && strcspn(value, " \t\n") == n && value[0] != '-' && value[0] != '(') {
			char name[200];
			snprintf(name, sizeof name, "%s", path + strlen("/proc/sys/"));
			for (char *at = name; *at; at++)
				if (*at == '/')
					*at = '.';
			say("%s=%s", name, value);
		}
		return 0;
	}
	static const char *odd[] = { "", "x", "-1", "0", "1", "2", "99999999999999999999", "0x10", "1 2 3 4 5 6 7 8 9",
		"\n", " ", "1\n", "\xff\xfe", "-9223372036854775808" };
	for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++)
		if (!strstr(path, "nr_hugepages") || strlen(odd[i]) < 3)
			put(path, odd[i], strlen(odd[i]));
	if (acts(path) || n < 0)
		return 0;
	int error = put(path, value, n);
	/* No number is asked for, and −1 says so; the other one of two limits counts, and 0 says so. */
	int says_none = !strcmp(value, "-1") || !strcmp(value, "0") && strstr(path, "_bytes");
	if (error && !says_none)
		say("%s does not take its own value '%s': %s", path, value, strerrorname_np(error));
	load(path, now, sizeof now);
	now[strcspn(now, "\n")] = 0;
	if (!error && strcmp(now, value))
		say("%s took '%s' and shows '%s'", path, value, now);
	return 0;
}

int main(int words, char **word)
{
	listing = words > 1;
	nftw("/proc/sys", look, 20, FTW_PHYS);
	if (!listing)
		say("enough files: %d, knobs: %d", files > 60, knobs > 30);
	return 0;
}
