/* Has khugepaged, which joins pages by and by, change nothing that a program counts. */
#include "figures.h"

#define KHUGEPAGED "/sys/kernel/mm/transparent_hugepage/khugepaged/"

static inline long scans(void)
{
	return number(KHUGEPAGED "full_scans", "");
}

/* Has khugepaged sleep for as long as the program takes. An area that is there all the time, with
 * too few pages to be joined, keeps it from being woken by the next one. */
static inline void put_khugepaged_to_sleep(void)
{
	long bytes = 2l << 20;
	char *all = MUST(mmap(0, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *at = (char *)(((uintptr_t)all + bytes - 1) & -bytes);
	MUST(madvise(all, 2 * bytes, MADV_NOHUGEPAGE));
	*at = 1;
	MUST(set_knob(KHUGEPAGED "max_ptes_none", "0"));
	MUST(set_knob(KHUGEPAGED "pages_to_scan", "1000000"));
	MUST(set_knob(KHUGEPAGED "scan_sleep_millisecs", "10"));
	MUST(madvise(at, bytes, MADV_HUGEPAGE));
	long seen = scans();
	while (scans() < seen + 2)
		sleep_ms(10);
	/* What it is at just then it ends. That may take a while on a busy machine. */
	MUST(set_knob(KHUGEPAGED "scan_sleep_millisecs", "1000000000"));
	seen = scans();
	for (int calm = 0; calm < 10; calm++) {
		sleep_ms(100);
		if (scans() != seen)
			seen = scans(), calm = 0;
	}
}
