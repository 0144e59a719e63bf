/* The vDSO: what loaders find in it, and that its clocks and the kernel's are the same. */
#include "say.h"
#include <elf.h>
#include <sched.h>
#include <sys/auxv.h>

static long ns(struct timespec t) { return t.tv_sec * 1000000000L + t.tv_nsec; }

static char *image;

static unsigned long dynamic(unsigned long tag)
{
	Elf64_Ehdr *head = (void *)image;
	Elf64_Phdr *segment = (void *)(image + head->e_phoff);
	for (int i = 0; i < head->e_phnum; i++)
		if (segment[i].p_type == PT_DYNAMIC)
			for (Elf64_Dyn *d = (void *)(image + segment[i].p_offset); d->d_tag; d++)
				if ((unsigned long)d->d_tag == tag)
					return d->d_un.d_val;
	return 0;
}

static void *find(const char *name, int binding)
{
	unsigned *table = (void *)(image + dynamic(DT_HASH));
	Elf64_Sym *symbols = (void *)(image + dynamic(DT_SYMTAB));
	for (unsigned i = 1; i < table[1]; i++)
		if (!strcmp(image + dynamic(DT_STRTAB) + symbols[i].st_name, name) &&
		    ELF64_ST_BIND(symbols[i].st_info) == binding)
			return image + symbols[i].st_value;
	return 0;
}

static void names(void)
{
	static const char *all[] = { "clock_gettime", "gettimeofday", "time", "getcpu", "clock_getres" };
	HOLDS(!memcmp(image, ELFMAG, SELFMAG));
	HOLDS(((unsigned long)image & 4095) == 0);
	say("name %s", image + dynamic(DT_STRTAB) + dynamic(DT_SONAME));
	for (int i = 0; i < 5; i++) {
		char name[40];
		sprintf(name, "__vdso_%s", all[i]);
		say("%s %d, %s %d", name, find(name, STB_GLOBAL) != 0, all[i], find(all[i], STB_WEAK) != 0);
	}
}

static void clocks(void)
{
	int (*get)(long, struct timespec *) = find("__vdso_clock_gettime", STB_GLOBAL);
	int (*resolution)(long, struct timespec *) = find("__vdso_clock_getres", STB_GLOBAL);
	static const int numbers[] = { 0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 31, 32, 99, -1, 1 << 30 };
	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		struct timespec before, now, after;
		int clock = numbers[i], answer = 0, back = 0;
		for (int turn = 0; turn < 500; turn++) {
			syscall(SYS_clock_gettime, clock, &before);
			answer = get(clock, &now);
			syscall(SYS_clock_gettime, clock, &after);
			back += !answer && (ns(now) < ns(before) || ns(after) < ns(now));
		}
		say("clock %d: %d, back %d", clock, answer, back);
		struct timespec told, same;
		answer = resolution(clock, &told);
		syscall(SYS_clock_getres, clock, &same);
		say("its resolution: %d, %d, nowhere %d", answer, answer || ns(told) == ns(same), resolution(clock, 0));
	}
	/* The ones that are read alone may be behind, not ahead. */
	static const int alone[] = { 5, 0, 6, 1 };
	for (int i = 0; i < 4; i += 2) {
		struct timespec coarse, fine;
		HOLDS(get(alone[i], &coarse) == 0);
		HOLDS(get(alone[i + 1], &fine) == 0);
		HOLDS(ns(coarse) <= ns(fine) && ns(fine) - ns(coarse) < 10000000000L);
	}
}

static void days(void)
{
	int (*get)(struct timeval *, struct timezone *) = find("__vdso_gettimeofday", STB_GLOBAL);
	time_t (*seconds)(time_t *) = find("__vdso_time", STB_GLOBAL);
	struct timeval before, now, after;
	struct timezone zone = { 7, 7 };
	syscall(SYS_gettimeofday, &before, 0);
	HOLDS(get(&now, &zone) == 0);
	syscall(SYS_gettimeofday, &after, 0);
	HOLDS(!timercmp(&now, &before, <) && !timercmp(&after, &now, <));
	say("zone %d %d", zone.tz_minuteswest, zone.tz_dsttime);
	zone.tz_minuteswest = 7;
	HOLDS(get(0, &zone) == 0 && zone.tz_minuteswest == 0);
	HOLDS(get(0, 0) == 0);
	time_t kept = 0, given = seconds(&kept);
	HOLDS(given == kept && given >= after.tv_sec - 1 && seconds(0) - given < 100);
}

static void cpus(void)
{
	int (*get)(unsigned *, unsigned *, void *) = find("__vdso_getcpu", STB_GLOBAL);
	int wrong = 0;
	for (int cpu = 0; cpu < 2; cpu++) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (sched_setaffinity(0, sizeof set, &set))
			continue;
		unsigned here = 99, node = 99;
		wrong += get(&here, &node, 0) != 0 || (int)here != cpu || node != 0;
		wrong += get(0, 0, 0) != 0;
	}
	say("cpus wrong %d", wrong);
}

static void memory(void)
{
	char line[400];
	unsigned long bytes = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps))
		if (strstr(line, "[vdso]")) {
			char *next;
			unsigned long start = strtoul(line, &next, 16);
			bytes = strtoul(next + 1, 0, 16) - start;
			HOLDS((char *)start == image);
			say("rights %.4s, named at %d", strchr(line, ' ') + 1, (int)(strstr(line, "[vdso]") - line));
		}
	fclose(maps);
	IN_CHILD("a store", {
		*image = 0;
	});
	IN_CHILD("a store that is allowed", {
		TRY(mprotect(image, bytes, PROT_READ | PROT_WRITE));
		image[1] = 'X';
		say("%.4s", image + 1);
	});
	say("here %.3s", image + 1);
	IN_CHILD("without it", {
		struct timespec now;
		TRY(munmap(image, bytes));
		TRY(syscall(SYS_clock_gettime, 1, &now));
		say("%d", *(volatile char *)image);
	});
	IN_CHILD("nowhere to write", clock_gettime(1, (void *)8));
	TRY(madvise(image, bytes, MADV_DONTNEED));
	HOLDS(!memcmp(image, ELFMAG, SELFMAG));
}

int main(void)
{
	image = (char *)getauxval(AT_SYSINFO_EHDR);
	HOLDS(image != 0);
	names();
	clocks();
	days();
	cpus();
	memory();
	return 0;
}
