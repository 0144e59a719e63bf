/* A program returns to itself by iretq, as the runtimes of .NET and Wine do. */
#include "say.h"
#include "iret.h"

static void stuck(int signal)
{
	say("signal %d at iretq", signal);
	_exit(1);
}

int main(void)
{
	signal(SIGALRM, stuck);
	signal(SIGSEGV, stuck);
	signal(SIGBUS, stuck);
	alarm(300);
	for (int i = 0; i < 3; i++) {
		return_to_itself();
		say("iretq returned");
	}
	return 0;
}
