/* Faults of file mappings: whichever page is touched first and however, each shows the file's bytes or
   the program's own, with holes, odd offsets, ends inside a page, cuts and holes made meanwhile. */
#include "say.h"
#include <pthread.h>
#include <setjmp.h>

#define PAGES 100
#define AT(page) ((page) % 1000 * 4)

static sigjmp_buf refused;
static int signal_number;

static void on_fault(int signal)
{
	signal_number = signal;
	siglongjmp(refused, 1);
}

/* 0, or the signal that a load gets. */
static int load(const char *at)
{
	if (sigsetjmp(refused, 1))
		return signal_number;
	*(volatile const char *)at;
	return 0;
}

static int store(char *at)
{
	if (sigsetjmp(refused, 1))
		return signal_number;
	*(volatile char *)at = 1;
	return 0;
}

/* A file of PAGES pages and a half, in which every third page is a hole. */
static int make(void)
{
	char path[] = "/tmp/filefault-XXXXXX";
	int file = MUST(mkstemp(path));
	MUST(unlink(path));
	for (int page = 0; page <= PAGES; page++) {
		int value = page + 1;
		if (page % 3)
			MUST(pwrite(file, &value, sizeof value, (off_t)page * PAGE + AT(page)));
	}
	MUST(ftruncate(file, PAGES * PAGE + PAGE / 2));
	return file;
}

static int expected(int page)
{
	return page % 3 ? page + 1 : 0;
}

static int shows(const char *map, int page, int first)
{
	return *(volatile int *)(map + (long)page * PAGE + AT(first + page));
}

static int wrong(const char *map, int pages, int first)
{
	int count = 0;
	for (int page = 0; page < pages; page++)
		count += shows(map, page, first) != expected(first + page);
	return count;
}

static char *map(int file, int flags, int first, int pages)
{
	return MUST(mmap(0, (long)pages * PAGE, PROT_READ | PROT_WRITE, flags, file, (off_t)first * PAGE));
}

static void private_stores(int file)
{
	static const int firsts[] = { 0, 1, 7, 33 };
	for (int i = 0; i < 4; i++) {
		int first = firsts[i], pages = PAGES - first;
		char *a = map(file, MAP_PRIVATE, first, pages), *b = map(file, MAP_PRIVATE, first, pages);
		/* Stored first; read first and then stored. */
		int errors = 0;
		for (int page = 0; page < pages; page++) {
			*(int *)(a + (long)page * PAGE + 8) = 7;
			errors += shows(b, page, first) != expected(first + page);
			*(int *)(b + (long)page * PAGE + 8) = 9;
		}
		HOLDS(errors == 0 && wrong(a, pages, first) <= 1 && wrong(b, pages, first) <= 1);
		for (int page = 0; page < pages; page++) {
			errors += *(int *)(a + (long)page * PAGE + 8) != 7;
			errors += *(int *)(b + (long)page * PAGE + 8) != 9;
		}
		HOLDS(errors == 0);
		MUST(munmap(a, (long)pages * PAGE));
		HOLDS(wrong(map(file, MAP_PRIVATE, first, pages), pages, first) == 0);
	}
}

static void shared_stores(int file)
{
	char *a = map(file, MAP_SHARED, 0, PAGES), *b = map(file, MAP_PRIVATE, 0, PAGES);
	char *read_only = MUST(mmap(0, PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0));
	HOLDS(wrong(b, PAGES, 0) == 0 && wrong(read_only, PAGES, 0) == 0);
	HOLDS(store(read_only + 5 * PAGE) == SIGSEGV && store(b + 5 * PAGE) == 0);
	int value;
	for (int page = 0; page < PAGES; page++)
		*(int *)(a + (long)page * PAGE + 16) = page * 3;
	int errors = 0;
	for (int page = 0; page < PAGES; page++) {
		MUST(pread(file, &value, sizeof value, (off_t)page * PAGE + 16));
		errors += value != page * 3;
		errors += *(int *)(b + (long)page * PAGE + 16) != (page == 5 ? 0 : page * 3);
		errors += *(int *)(read_only + (long)page * PAGE + 16) != page * 3;
	}
	HOLDS(errors == 0);
	IN_CHILD("a child that stores", {
		a[9 * PAGE + 20] = 77;
		b[9 * PAGE + 20] = 78;
		b[10 * PAGE + 20] = 79;
	});
	HOLDS(a[9 * PAGE + 20] == 77 && b[9 * PAGE + 20] == 77 && b[10 * PAGE + 20] == 0);
	MUST(munmap(a, PAGES * PAGE));
	MUST(munmap(b, PAGES * PAGE));
	MUST(munmap(read_only, PAGES * PAGE));
}

static void ends(int file)
{
	/* The half page shows zeros behind the end; the pages behind it are not the file's. */
	char *a = map(file, MAP_SHARED, 90, 20), *b = map(file, MAP_PRIVATE, 90, 20);
	HOLDS(shows(a, 10, 90) == expected(100) && a[11 * PAGE - 1] == 0);
	HOLDS(load(a + 11 * PAGE) == SIGBUS && load(b + 11 * PAGE) == SIGBUS && store(b + 12 * PAGE) == SIGBUS);
	/* Cut: what was mapped around goes as well. */
	HOLDS(load(a + 9 * PAGE) == 0);
	b[2 * PAGE] = 1;
	MUST(ftruncate(file, 92 * PAGE));
	HOLDS(load(a + PAGE) == 0 && load(a + 2 * PAGE) == SIGBUS && load(a + 9 * PAGE) == SIGBUS);
	HOLDS(load(b + 2 * PAGE) == SIGBUS && store(b + 9 * PAGE) == SIGBUS);
	/* And longer again: zeros. */
	MUST(ftruncate(file, 110 * PAGE));
	HOLDS(load(a + 9 * PAGE) == 0 && shows(a, 9, 90) == 0 && a[19 * PAGE] == 0);
	a[19 * PAGE] = 5;
	char byte = 0;
	MUST(pread(file, &byte, 1, 109 * PAGE));
	HOLDS(byte == 5);
	/* A hole. */
	HOLDS(shows(a, 1, 90) == expected(91));
	MUST(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 91 * PAGE, PAGE));
	HOLDS(shows(a, 1, 90) == 0 && shows(b, 1, 90) == 0);
	MUST(munmap(a, 20 * PAGE));
	MUST(munmap(b, 20 * PAGE));
}

static void rights(int file)
{
	char *a = MUST(mmap(0, PAGES * PAGE, PROT_READ, MAP_PRIVATE, file, 0));
	HOLDS(wrong(a, PAGES / 2, 0) == 0 && store(a) == SIGSEGV);
	MUST(mprotect(a + 8 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE));
	HOLDS(store(a + 9 * PAGE + 100) == 0 && store(a + 7 * PAGE) == SIGSEGV && store(a + 12 * PAGE) == SIGSEGV);
	MUST(madvise(a + 8 * PAGE, 4 * PAGE, MADV_DONTNEED));
	HOLDS(wrong(a, PAGES / 2, 0) == 0 && a[9 * PAGE + 100] == 0);
	MUST(mprotect(a, PAGES * PAGE, PROT_NONE));
	HOLDS(load(a + 9 * PAGE) == SIGSEGV);
	MUST(mprotect(a, PAGES * PAGE, PROT_READ));
	HOLDS(wrong(a, PAGES / 2, 0) == 0);
	MUST(munmap(a, PAGES * PAGE));
}

/* Threads that fault in one mapping while another cuts the file and makes it longer again. */
static char *common;
static volatile int over;

static void *reader(void *argument)
{
	long me = (long)argument, errors = 0;
	for (int round = 0; !over; round++)
		for (int page = 0; page < 60; page++) {
			int value = shows(common, (page * 7 + me) % 60, 0);
			errors += value != 0 && value != (page * 7 + me) % 60 + 1;
			if (page % 20 == 0)
				madvise(common, 60 * PAGE, MADV_DONTNEED);
		}
	return (void *)errors;
}

static void with_threads(int file)
{
	pthread_t threads[3];
	common = map(file, MAP_SHARED, 0, PAGES);
	for (long i = 0; i < 3; i++)
		pthread_create(&threads[i], 0, reader, (void *)i);
	for (int round = 0; round < 300; round++) {
		MUST(ftruncate(file, 60 * PAGE));
		MUST(ftruncate(file, 90 * PAGE));
		MUST(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, round % 60 * PAGE, PAGE));
		int value = round % 60 + 1;
		MUST(pwrite(file, &value, sizeof value, (off_t)(round % 60) * PAGE + AT(round % 60)));
	}
	over = 1;
	long errors = 0;
	for (int i = 0; i < 3; i++) {
		void *result;
		pthread_join(threads[i], &result);
		errors += (long)result;
	}
	HOLDS(errors == 0);
}

int main(void)
{
	signal(SIGSEGV, on_fault);
	signal(SIGBUS, on_fault);
	int file = make();
	private_stores(file);
	rights(file);
	shared_stores(file);
	file = make();
	ends(file);
	file = make();
	with_threads(file);
	return 0;
}
