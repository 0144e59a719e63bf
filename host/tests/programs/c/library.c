/* What the C library does by itself: text, sorting, contexts, temporary files, large numbers. */
#include "say.h"
#include <ctype.h>
#include <glob.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <regex.h>
#include <search.h>
#include <setjmp.h>
#include <ucontext.h>
#include <wchar.h>

static ucontext_t outer, inner;
static int steps;
static void coroutine(int a, int b)
{
	for (int i = 0; i < 3; i++) {
		steps += a * 10 + b;
		swapcontext(&inner, &outer);
	}
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(void)
{
	char b[400];
	snprintf(b, 400, "%d %5.2f %-6s| %#x %e %g %Lg %zu %c %%", -5, 3.14159, "ab", 255, 12345.678, 0.0001, 1e100L, sizeof b, 'q');
	say("%s", b);
	say("%.20g %a %.0f", 0.1, 1.0 / 3, 2.5);
	int n;
	double d;
	char word[20];
	int items = sscanf("42 2.5e3 word", "%d %lf %19s", &n, &d, word);
	say("%d %d %g %s", items, n, d, word);
	say("%ld %lu %g", strtol("-0x1f", NULL, 0), strtoul("777", NULL, 8), strtod("inf", NULL));
	int *v = malloc(100000 * sizeof *v);
	srand(42);
	for (int i = 0; i < 100000; i++)
		v[i] = rand();
	qsort(v, 100000, sizeof *v, compare);
	int sorted = 1;
	for (int i = 1; i < 100000; i++)
		sorted &= v[i - 1] <= v[i];
	say("sorted %d, first %d, middle %d", sorted, v[0], v[50000]);
	HOLDS(bsearch(&v[777], v, 100000, sizeof *v, compare) != NULL);
	free(v);
	regex_t re;
	regmatch_t m[2];
	TRY(regcomp(&re, "b([0-9]+)c", REG_EXTENDED));
	TRY(regexec(&re, "aab1234cd", 2, m, 0));
	say("%d %d", (int)m[1].rm_so, (int)m[1].rm_eo);
	regfree(&re);
	say("%s", setlocale(LC_ALL, ""));
	mbstate_t state = { 0 };
	wchar_t w;
	HOLDS(mbrtowc(&w, "x", 1, &state) == 1);

	FILE *f = tmpfile();
	HOLDS(f != NULL);
	for (int i = 0; i < 5000; i++)
		fprintf(f, "record %d\n", i);
	fseek(f, -12, SEEK_END);
	HOLDS(fgets(b, 400, f) != NULL);
	say("%s", strtok(b, "\n"));
	rewind(f);
	n = 0;
	while (fgets(b, 400, f))
		n++;
	say("%d lines, at %ld", n, ftell(f));
	fclose(f);
	char name[] = "made-XXXXXX";
	int fd = mkstemp(name);
	HOLDS(fd >= 0);
	char link[400] = "", path[40];
	snprintf(path, 40, "/proc/self/fd/%d", fd);
	HOLDS(readlink(path, link, 399) > 0 && strstr(link, name) != NULL);
	glob_t g;
	TRY(glob("made-*", 0, NULL, &g));
	say("%zu", g.gl_pathc);
	globfree(&g);
	unlink(name);
	TRY(rename(name, "x"));
	perror("perror says");
	f = fopen("none", "r");
	say("%s", strerror(errno));
	f = fmemopen(b, 100, "w+");
	fputs("in memory", f);
	fclose(f);
	say("%s", b);
	char *text;
	size_t size;
	f = open_memstream(&text, &size);
	fprintf(f, "%0100d", 7);
	fclose(f);
	say("%zu %s", size, text + 95);

	static char stack[65536];
	getcontext(&inner);
	inner.uc_stack.ss_sp = stack;
	inner.uc_stack.ss_size = sizeof stack;
	inner.uc_link = &outer;
	makecontext(&inner, (void (*)(void))coroutine, 2, 4, 2);
	for (int i = 0; i < 4; i++)
		swapcontext(&outer, &inner);
	say("steps %d", steps);
	jmp_buf jump;
	volatile int turns = 0;
	if (setjmp(jump) < 5)
		longjmp(jump, ++turns);
	say("turns %d", turns);
	setenv("VARIABLE", "value with = sign", 1);
	say("%s", getenv("VARIABLE"));
	unsetenv("VARIABLE");
	HOLDS(getenv("VARIABLE") == NULL);
	TRY(putenv("P=Q"));
	TRY(system("echo $P; exit 3") >> 8);
	struct tm tm = { .tm_year = 124, .tm_mon = 1, .tm_mday = 29, .tm_hour = 12 };
	setenv("TZ", "CET-1", 1);
	tzset();
	time_t t = mktime(&tm);
	say("%ld %d %s", (long)t, tm.tm_yday, strtok(ctime(&t), "\n"));
	hcreate(100);
	hsearch((ENTRY){ "key", "data" }, ENTER);
	say("%s", (char *)hsearch((ENTRY){ "key", NULL }, FIND)->data);
	say("%" PRIx64, hash("the end", 7));
	printf("buffered output ");
	fprintf(stderr, "and errors\n");
	puts("come out at exit");
	return EXIT_SUCCESS;
}
