/* What each knob of memory makes of odd texts: the result of the write and the value afterwards. */
#include "say.h"
#include <sys/uio.h>

enum {
	ANY = 0,
	/* Great numbers are not written: what is set takes memory. */
	SMALL = 1,
	/* The file cannot be read. */
	UNREADABLE = 2,
};

struct knob {
	const char *path;
	/* What is written before each text. */
	const char *start;
	int flags;
};

#define VM "/proc/sys/vm/"
#define THP "/sys/kernel/mm/transparent_hugepage/"
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static const struct knob knobs[] = {
	{ VM "overcommit_memory", "0", ANY },
	{ VM "overcommit_ratio", "50", ANY },
	{ VM "max_map_count", "65530", ANY },
	{ VM "min_free_kbytes", "8000", SMALL },
	{ VM "compaction_proactiveness", "20", ANY },
	{ VM "extfrag_threshold", "500", ANY },
	{ VM "compact_unevictable_allowed", "1", ANY },
	{ VM "panic_on_oom", "0", ANY },
	{ VM "swappiness", "60", ANY },
	{ VM "dirty_background_ratio", "10", ANY },
	{ VM "dirty_background_bytes", "8192", ANY },
	{ VM "dirty_ratio", "20", ANY },
	{ VM "dirty_bytes", "8192", ANY },
	{ VM "dirty_writeback_centisecs", "500", ANY },
	{ VM "nr_overcommit_hugepages", "3", ANY },
	{ VM "nr_hugepages", "3", SMALL },
	{ VM "drop_caches", "1", UNREADABLE },
	{ VM "compact_memory", "1", UNREADABLE },
	{ THP "enabled", "madvise", ANY },
	{ THP "defrag", "defer", ANY },
	{ THP "shmem_enabled", "advise", ANY },
	{ THP "use_zero_page", "1", ANY },
	{ THP "khugepaged/defrag", "1", ANY },
	{ THP "khugepaged/scan_sleep_millisecs", "10000", ANY },
	{ THP "khugepaged/alloc_sleep_millisecs", "60000", ANY },
	{ THP "khugepaged/pages_to_scan", "4096", ANY },
	{ THP "khugepaged/max_ptes_none", "100", ANY },
	{ THP "khugepaged/max_ptes_shared", "100", ANY },
	{ THP "khugepaged/max_ptes_swap", "100", ANY },
	{ POOL "nr_hugepages", "3", SMALL },
	{ POOL "nr_overcommit_hugepages", "3", ANY },
};

struct text {
	const char *bytes;
	size_t length;
	/* It may be taken for a great number. */
	int great;
};

#define T(text) { text, sizeof text - 1, 0 }
#define G(text) { text, sizeof text - 1, 1 }

static const struct text texts[] = {
	T("2"), T("20"), T("20\n"), T(" 20"), T("\t\n20 \n"), T("020"), T("010\n"), T("0x14"), T("0X1F\n"), T("08"),
	T("0x"), T("0xg"), T("0b1"), T("33 44"), T("33\n44\n"), T("33\t"), T("33,44"), T("33;"), T("3.5"), T("1e2"),
	T("+5"), T("-5"), T("-5\n"), T("- 5"), T("-"), T("--5"), T("-0"), T("-0x1"), T("5\0"), T("5\0six"), T("\0005"),
	T("5\n\0"), T("5a"), T("a5"), T("\n"), T(" "), T("\n\n"), T("5\n\n"), T("5\r\n"), T("5\v"), T("\v5"),
	T("\xa0" "7"), T("7\xa0"), T("\xff"), T("00000000000000000005"), T("000000000000000000005"),
	T("0000000000000000000000000000005"), T("00000000000000000005 "), T("0"), T("1"), T("1\n"), T("01"), T("1 "),
	T("00"), T("3"), T("4"), T("99"), T("100"), T("101"), G("511"), G("512"), T("y"), T("Y"), T("n"), T("on"), T("off"),
	T("always"), T("always\n"), T("always\n\n"), T(" always"), T("always "), T("always\0"), T("always\0x"),
	T("always\n\0"), T("ALWAYS"), T("alway"), T("alwaysx"), T("never\n"), T("never\r\n"), T("madvise"),
	T("defer+madvise\n"), T("defer"), T("within_size\n"), T("deny"), T("force"), T("force          "),
	T("force           "), T("[always]"), T("2M"), T("1k"), T("0x10K"),
	G("1000"), G("1001"), G("4095"), G("4096"), G("8191"), G("8192"), G("65536"), G("2147483647"), G("2147483648"),
	G("4294967295"), G("4294967296"), G("4294967297"), G("9223372036854775807"), G("9223372036854775808"),
	G("18446744073709551615"), G("18446744073709551616"), G("99999999999999999999"), G("0xffffffffffffffff"),
	G("0x10000000000000000"), G("-1"), G("-2147483648"), G("-2147483649"), G("-9223372036854775808"),
	G("-18446744073709551615"),
};

/* Long texts: a number, then or before blanks. */
static char filled[3][9000];

static void load(const char *path, char *value, size_t room)
{
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, value, room - 1);
	value[n < 0 ? 0 : n] = 0;
	if (n > 0 && value[n - 1] == '\n')
		value[n - 1] = 0;
	if (fd >= 0)
		close(fd);
}

/* The bytes so that they can be read. */
static const char *escaped(const char *bytes, size_t length)
{
	static char text[400];
	char *at = text;
	for (size_t i = 0; i < length && i < 40; i++) {
		unsigned char c = bytes[i];
		if (c >= ' ' && c < 127)
			*at++ = c;
		else
			at += sprintf(at, "\\x%02x", c);
	}
	*at = 0;
	return text;
}

static const char *name_of(const struct knob *knob)
{
	const char *slash = strrchr(knob->path, '/');
	return slash + 1;
}

static void begin(const struct knob *knob)
{
	int fd = open(knob->path, O_WRONLY);
	if (fd < 0 || write(fd, knob->start, strlen(knob->start)) < 0)
		say("%s does not take %s: %s", knob->path, knob->start, strerrorname_np(errno));
	close(fd);
}

static void say_end(const struct knob *knob, const char *what, ssize_t result, int error)
{
	char value[300] = "-";
	if (!(knob->flags & UNREADABLE))
		load(knob->path, value, sizeof value);
	if (result < 0)
		say("%s %s: %s, %s", name_of(knob), what, strerrorname_np(error), value);
	else
		say("%s %s: %zd, %s", name_of(knob), what, result, value);
}

static void put(const struct knob *knob, const char *what, const char *bytes, size_t length)
{
	begin(knob);
	int fd = MUST(open(knob->path, O_WRONLY));
	errno = 0;
	ssize_t n = write(fd, bytes, length);
	int error = errno;
	close(fd);
	say_end(knob, what, n, error);
}

static void several(const struct knob *knob)
{
	begin(knob);
	int fd = MUST(open(knob->path, O_WRONLY));
	ssize_t n = write(fd, "", 0);
	say_end(knob, "nothing", n, errno);
	n = write(fd, "1", 1);
	say_end(knob, "first", n, errno);
	say("at %ld", (long)lseek(fd, 0, SEEK_CUR));
	n = write(fd, "2", 1);
	say_end(knob, "second", n, errno);
	say("at %ld", (long)lseek(fd, 0, SEEK_CUR));
	n = write(fd, "x", 1);
	say_end(knob, "third", n, errno);
	lseek(fd, 0, SEEK_SET);
	n = write(fd, "0", 1);
	say_end(knob, "from the start", n, errno);
	n = pwrite(fd, "1", 1, 3);
	say_end(knob, "behind", n, errno);
	n = pwrite(fd, "1", 1, 0);
	say_end(knob, "before", n, errno);
	close(fd);

	begin(knob);
	fd = MUST(open(knob->path, O_WRONLY | O_TRUNC | O_APPEND));
	struct iovec parts[] = { { "0", 1 }, { "2\n", 2 } };
	n = writev(fd, parts, 2);
	say_end(knob, "in parts", n, errno);
	close(fd);
	fd = MUST(open(knob->path, O_WRONLY));
	n = write(fd, HOLE, 3);
	say_end(knob, "from nowhere", n, errno);
	close(fd);
}

int main(void)
{
	memset(filled[0], ' ', sizeof filled[0]);
	memset(filled[1], ' ', sizeof filled[1]);
	filled[0][0] = '1';
	filled[1][4094] = '2';
	memset(filled[2], '0', sizeof filled[2]);
	for (const struct knob *knob = knobs; knob < knobs + sizeof knobs / sizeof *knobs; knob++) {
		struct stat s;
		if (stat(knob->path, &s) != 0) {
			say("%s is not there", knob->path);
			continue;
		}
		say("%s has mode %o", knob->path, s.st_mode & 07777);
		TRY(open(knob->path, O_RDONLY) < 0);
		for (const struct text *text = texts; text < texts + sizeof texts / sizeof *texts; text++)
			if (!(text->great && knob->flags & SMALL))
				put(knob, escaped(text->bytes, text->length), text->bytes, text->length);
		put(knob, "one, and blanks for a page", filled[0], 4096);
		put(knob, "one, and blanks for a page and more", filled[0], 5000);
		put(knob, "blanks for a page, then two", filled[1], 4095);
		put(knob, "the same, and more", filled[1], 4200);
		put(knob, "zeros", filled[2], 8192);
		several(knob);
		begin(knob);
	}
	return 0;
}
