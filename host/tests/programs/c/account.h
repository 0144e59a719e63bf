/* Whether every frame that was taken came back: the kernel's counters before and after, compared. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Frames that a CPU keeps at most (mm/src/cpu_cache.rs): single ones, a block of each order, and those it has not told of. */
#define AT_HAND (704 + 1022 + 256)

/* All in frames. */
struct account {
	/* What there is, and what of it is free, but for what each CPU keeps at hand. */
	long total, free;
	/* Taken so far and not given back. What the memmap gives up of what it has from boot is given back and was not taken. */
	long taken;
	/* What is in use, by its kinds; the memmap's part of it, and what it has from boot besides. */
	long kinds, memmap, boot;
	/* Blocks whose descriptors are given up, and blocks that carry theirs. */
	long shared, carried;
};

/* A file as it is at one moment: to read it anew for each number takes and frees memory in between. */
static inline void read_all(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);

	if (length < 0)
		perror(path);
	text[length < 0 ? 0 : length] = 0;
	close(fd);
}

static inline long number_of(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, name, length) && (line[length] == ':' || line[length] == ' '))
			return strtol(line + length + 1, NULL, 10);
	}
	printf("there is no %s\n", name);
	return 0;
}

static inline struct account read_account(void)
{
	const char *kinds[] = {"AnonPages", "Cached", "Slab", "KernelStack", "PageTables", "VmallocUsed", "Hugetlb"};
	static char meminfo[16384], vmstat[16384];

	read_all("/proc/meminfo", meminfo, sizeof meminfo);
	read_all("/proc/vmstat", vmstat, sizeof vmstat);
	struct account account = {
		.total = number_of(meminfo, "MemTotal") / 4,
		.free = number_of(meminfo, "MemFree") / 4,
		.taken = number_of(vmstat, "pgalloc_dma32") + number_of(vmstat, "pgalloc_normal") - number_of(vmstat, "pgfree"),
		.memmap = number_of(vmstat, "nr_memmap_pages"),
		.boot = number_of(vmstat, "nr_memmap_boot_pages"),
		.shared = number_of(vmstat, "htlb_vmemmap_shared"),
		.carried = number_of(vmstat, "htlb_vmemmap_carried"),
	};

	account.kinds = account.memmap;
	for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
		account.kinds += number_of(meminfo, kinds[kind]) / 4;
	return account;
}

/* Reads until nothing moves: the first look takes memory itself. */
static inline struct account take_account(void)
{
	struct account account = read_account(), again = read_account();

	for (int tries = 0; tries < 100 && memcmp(&account, &again, sizeof account); tries++) {
		account = again;
		usleep(1000);
		again = read_account();
	}
	return again;
}

/* What is wrong now, if the pool is empty and no other program runs; NULL: nothing. */
static inline const char *what_is_wrong(const struct account *before, const struct account *now)
{
	/* A page and a table that all share, and a table for each 128 MiB whose descriptors were parted. */
	long tables = 2 + now->total / (32 << 10) + 1;
	long given_up = before->boot - now->boot, used = now->kinds - before->kinds;
	long at_hand = now->total - before->total - used - (now->free - before->free);
	long most_at_hand = AT_HAND * sysconf(_SC_NPROCESSORS_ONLN);

	if (now->shared != 0)
		return "descriptors are given up still";
	if (now->carried != 0)
		return "blocks carry their descriptors still";
	if (now->total - before->total != given_up)
		return "MemTotal is not what it was and what the memmap gave up";
	if (now->taken - before->taken + given_up != used)
		return "frames are in use that no program has";
	if (now->memmap - before->memmap < given_up || now->memmap - before->memmap > given_up + tables)
		return "the memmap is not as large as it was";
	if (at_hand < -most_at_hand || at_hand > most_at_hand)
		return "more is missing than CPUs keep at hand";
	return NULL;
}

/* Says whether all came back since, when what ends by and by has had some time. */
static inline int settle(const struct account *before)
{
	const char *wrong = "nothing";
	struct account now;

	for (int tries = 0; wrong && tries < 6000; tries++) {
		if (tries > 0)
			usleep(50000);
		now = take_account();
		wrong = what_is_wrong(before, &now);
	}
	printf("account: %s\n", wrong ? wrong : "settled");
	if (wrong)
		printf("total %ld to %ld, free %ld to %ld, taken %ld to %ld, kinds %ld to %ld, memmap %ld to %ld, boot %ld to %ld, "
		       "shared %ld, carried %ld\n",
		       before->total, now.total, before->free, now.free, before->taken, now.taken, before->kinds, now.kinds,
		       before->memmap, now.memmap, before->boot, now.boot, now.shared, now.carried);
	return wrong != NULL;
}
