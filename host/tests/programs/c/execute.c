/* exec in its forms: arguments, environment, descriptors, signals, scripts, errors; vfork, spawn. */
#include "say.h"
#include <spawn.h>

extern char **environ;
static char self[4096];

static char *self_path(void)
{
	ssize_t n = MUST(readlink("/proc/self/exe", self, sizeof self - 1));
	self[n] = 0;
	return self;
}

static int status_of(pid_t pid)
{
	int status;
	MUST(waitpid(pid, &status, 0));
	return status;
}

static void role(int argc, char **argv)
{
	if (!strcmp(argv[1], "show")) {
		say("argc %d", argc);
		for (int i = 0; i < argc; i++)
			say("argv[%d] is %s", i, strcmp(argv[i], self_path()) ? argv[i] : "the program");
		for (char **e = environ; *e; e++)
			say("environ has %s", *e);
		exit(3);
	}
	if (!strcmp(argv[1], "long")) {
		size_t sum = 0;
		for (int i = 2; i < argc; i++)
			sum += strlen(argv[i]);
		say("%d arguments of %zu bytes", argc - 2, sum);
		exit(0);
	}
	if (!strcmp(argv[1], "signals")) {
		struct sigaction a;
		sigaction(SIGUSR1, NULL, &a);
		say("SIGUSR1 is %s", a.sa_handler == SIG_DFL ? "default" : a.sa_handler == SIG_IGN ? "ignored" : "handled");
		sigaction(SIGUSR2, NULL, &a);
		say("SIGUSR2 is %s", a.sa_handler == SIG_DFL ? "default" : a.sa_handler == SIG_IGN ? "ignored" : "handled");
		sigset_t set;
		sigprocmask(SIG_BLOCK, NULL, &set);
		say("SIGHUP is %sblocked", sigismember(&set, SIGHUP) ? "" : "not ");
		exit(0);
	}
	if (!strcmp(argv[1], "descriptors")) {
		for (int fd = 3; fd < 20; fd++)
			if (fcntl(fd, F_GETFD) != -1)
				say("descriptor %d is open", fd);
		exit(0);
	}
	exit(97);
}

static void handler(int sig) { (void)sig; }

int main(int argc, char **argv)
{
	if (argc > 1)
		role(argc, argv);
	/* What a shell above the tests has left open is not of interest. */
	closefrom(3);
	self_path();
	char *const env[] = { "ONE=1", "TWO=", "THREE", NULL };
	IN_CHILD("show", execle(self, "name", "show", "", "a b", "ü", NULL, env));
	char *const none[] = { NULL };
	IN_CHILD("show", execve(self, (char *[]){ "x", "show", NULL }, none));

	/* long arguments, and too long ones */
	static char big[100001];
	memset(big, 'q', 100000);
	static char *many[2003];
	many[0] = "x";
	many[1] = "long";
	for (int i = 2; i < 2002; i++)
		many[i] = "0123456789";
	IN_CHILD("long", execl(self, "x", "long", big, big, NULL));
	IN_CHILD("long", execv(self, many));
	static char *too_many[60];
	too_many[0] = "x";
	too_many[1] = "long";
	for (int i = 2; i < 59; i++)
		too_many[i] = big;
	IN_CHILD("too long", TRY(execv(self, too_many)));
	static char huge[140001];
	memset(huge, 'h', 140000);
	IN_CHILD("too long", TRY(execl(self, "x", "long", huge, NULL)));

	/* errors leave the caller as it was */
	TRY(execl("/nowhere", "x", NULL));
	TRY(execl("/tmp", "x", NULL));
	int fd = MUST(open("plain", O_CREAT | O_WRONLY | O_TRUNC, 0644));
	MUST(write(fd, "no program", 10));
	close(fd);
	TRY(execl("plain", "x", NULL));
	chmod("plain", 0755);
	TRY(execl("./plain", "x", NULL));
	fd = MUST(open("broken", O_CREAT | O_WRONLY | O_TRUNC, 0755));
	MUST(write(fd, "\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\76\0\1\0\0\0", 24));
	close(fd);
	TRY(execl("./broken", "x", NULL));
	TRY(execl("./plain/x", "x", NULL));
	TRY(execve((char *)8, none, none));
	TRY(execve(self, (char *const *)8, none));
	TRY(execve("", none, none));

	/* a script, and one whose interpreter is missing */
	fd = MUST(open("script", O_CREAT | O_WRONLY | O_TRUNC, 0755));
	dprintf(fd, "#!%s show\nnothing here runs\n", self);
	close(fd);
	IN_CHILD("script", execle("./script", "lost", "one", "two", NULL, env));
	fd = MUST(open("lost", O_CREAT | O_WRONLY | O_TRUNC, 0755));
	dprintf(fd, "#!/no/such/interpreter\n");
	close(fd);
	TRY(execl("./lost", "x", NULL));

	/* descriptors, signals */
	int a = MUST(open("/dev/null", O_RDONLY)), b = MUST(open("/dev/null", O_RDONLY | O_CLOEXEC));
	dup2(a, 10);
	dup3(b, 11, O_CLOEXEC);
	fcntl(12 + 0 * fcntl(a, F_DUPFD_CLOEXEC, 12), F_GETFD);
	close(a);
	close(b);
	IN_CHILD("descriptors", execl(self, "x", "descriptors", NULL));
	signal(SIGUSR1, handler);
	signal(SIGUSR2, SIG_IGN);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	IN_CHILD("signals", execl(self, "x", "signals", NULL));
	int me = MUST(open(self, O_RDONLY | O_CLOEXEC));
	IN_CHILD("by descriptor", fexecve(me, (char *[]){ "x", "long", "a", NULL }, env));

	/* vfork and spawn */
	volatile int shared = 1;
	pid_t pid = vfork();
	if (pid == 0) {
		shared = 2;
		execl(self, "x", "long", "v", NULL);
		_exit(1);
	}
	say_status("vfork", status_of(pid));
	say("shared is %d", shared);
	pid = vfork();
	if (pid == 0) {
		shared = 3;
		_exit(4);
	}
	say("shared is %d at once", shared);
	say_status("vfork", status_of(pid));
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_CREAT | O_WRONLY | O_TRUNC, 0600);
	TRY(posix_spawn(&pid, self, &actions, NULL, (char *[]){ "x", "long", "abc", NULL }, env));
	say_status("spawn", status_of(pid));
	char text[200] = "";
	fd = MUST(open("spawned", O_RDONLY));
	MUST(read(fd, text, 199));
	say("it said %s", strtok(text, "\n"));
	TRY(posix_spawn(&pid, "/nowhere", NULL, NULL, (char *[]){ "x", NULL }, env));
	TRY(system("exit 9") >> 8);
	FILE *f = popen("echo from the shell; exit 2", "r");
	if (f && fgets(text, sizeof text, f))
		say("popen says %s", strtok(text, "\n"));
	TRY(pclose(f) >> 8);
	for (int i = 0; i < 5; i++)
		unlink((const char *[]){ "plain", "broken", "script", "lost", "spawned" }[i]);
	return 0;
}
