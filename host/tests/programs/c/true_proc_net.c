/* What /proc/net and /sys/class/net tell: sockets in every state, and the loopback interface. */
#include "say.h"
#include "blocked.h"
#include "delivered.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef IPPROTO_UDPLITE
#define IPPROTO_UDPLITE 136
#endif

/* The sockets that are looked for, by the inodes that fstat tells. */
static struct { const char *name; unsigned long inode; } known[32];
static int count;

static int know(const char *name, int fd)
{
	struct stat st;
	MUST(fstat(fd, &st));
	known[count].name = name;
	known[count++].inode = st.st_ino;
	return fd;
}

static struct sockaddr *four(uint16_t port)
{
	static struct sockaddr_in in;
	in = (struct sockaddr_in) { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
	return (struct sockaddr *)&in;
}

static struct sockaddr *six(uint16_t port)
{
	static struct sockaddr_in6 in;
	in = (struct sockaddr_in6) { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback };
	return (struct sockaddr *)&in;
}

#define FOUR sizeof(struct sockaddr_in)
#define SIX sizeof(struct sockaddr_in6)

static int make(const char *name, int family, int type, int protocol, uint16_t port)
{
	int fd = know(name, MUST(socket(family, type, protocol))), one = 1;
	MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	if (port && family == AF_INET)
		MUST(bind(fd, four(port), FOUR));
	else if (port)
		MUST(bind(fd, six(port), SIX));
	return fd;
}

/* The socket whose inode a line has in this column, counted from 0; 0 is the inode of who is not accepted. */
static const char *whose(const char *line, int column)
{
	char copy[1024];
	snprintf(copy, sizeof copy, "%s", line);
	char *word = strtok(copy, " \n");
	while (word && column--)
		word = strtok(0, " \n");
	if (!word)
		return 0;
	if (strcmp(word, "0") == 0)
		return "waits";
	for (int i = 0; i < count; i++)
		if (strtoul(word, 0, 10) == known[i].inode)
			return known[i].name;
	return 0;
}

/* Lines of sockets with ports: addresses, state, whether something waits to be sent and received, user. */
static void ports(const char *path)
{
	char line[1024];
	delivered();
	FILE *file = fopen(path, "r");
	if (!file) {
		say("%s: %s", path, strerrorname_np(errno));
		return;
	}
	fgets(line, sizeof line, file);
	line[strcspn(line, "\n")] = 0;
	say("%s: [%s]", path, line);
	/* In the order of the names. */
	static char lines[64][256];
	int n = 0;
	while (fgets(line, sizeof line, file)) {
		const char *name = whose(line, 9);
		char local[64], remote[64], state[8];
		unsigned sent, waits, uid;
		if (!name)
			continue;
		if (sscanf(line, " %*d: %63s %63s %7s %x:%x %*s %*s %u", local, remote, state, &sent, &waits, &uid) != 6)
			say("cannot read %s", line);
		/* What Linux keeps of connections that have ended is not kept here. */
		if (strcmp(name, "waits") == 0 && strcmp(state, "01") && strcmp(state, "08"))
			continue;
		int listens = strcmp(state, "0A") == 0;
		snprintf(lines[n++], sizeof *lines, "%s: %s %s %s %u %u %u of %zu", name, local, remote, state, sent,
			 listens ? waits : !!waits, uid, strlen(line) - (strstr(path, "6") || strlen(line) > 150 ? strlen(line) : 0));
	}
	fclose(file);
	qsort(lines, n, sizeof *lines, (int (*)(const void *, const void *))strcmp);
	for (int i = 0; i < n; i++)
		say("  %s", lines[i]);
}

/* Lines of sockets of AF_UNIX: flags, type, state and name. */
static void unix_lines(void)
{
	char line[1024];
	static char lines[64][256];
	int n = 0;
	FILE *file = fopen("/proc/net/unix", "r");
	if (!file) {
		say("unix: %s", strerrorname_np(errno));
		return;
	}
	fgets(line, sizeof line, file);
	line[strcspn(line, "\n")] = 0;
	say("unix: [%s]", line);
	while (fgets(line, sizeof line, file)) {
		const char *name = whose(line, 6);
		char flags[16], type[8], state[8], path[128] = "";
		if (!name || sscanf(line, "%*s %*s %*s %15s %7s %7s %*s %127s", flags, type, state, path) < 3)
			continue;
		if (strcmp(name, "waits") == 0 && !strstr(line, "proc_net"))
			continue;
		/* On Linux it counts as connected once a socket is connected to it. */
		if (strcmp(name, "datagram") == 0)
			strcpy(state, "-");
		snprintf(lines[n++], sizeof *lines, "%s: %s %s %s %s", name, flags, type, state, path);
	}
	fclose(file);
	qsort(lines, n, sizeof *lines, (int (*)(const void *, const void *))strcmp);
	for (int i = 0; i < n; i++)
		say("  %s", lines[i]);
}

static void all_ports(void)
{
	const char *files[] = { "tcp", "tcp6", "udp", "udp6", "udplite", "udplite6" };
	for (int i = 0; i < 6; i++) {
		char path[64];
		snprintf(path, sizeof path, "/proc/net/%s", files[i]);
		ports(path);
	}
}

static void sockets(void)
{
	int listener = make("listener", AF_INET, SOCK_STREAM, 0, 4711);
	MUST(listen(listener, 5));
	make("bound and no more", AF_INET, SOCK_STREAM, 0, 4712);
	make("nothing at all", AF_INET, SOCK_STREAM, 0, 0);
	int client = make("client", AF_INET, SOCK_STREAM, 0, 4713);
	MUST(connect(client, four(4711), FOUR));
	int second = make("second", AF_INET, SOCK_STREAM, 0, 4714);
	MUST(connect(second, four(4711), FOUR));
	say("two wait to be accepted");
	ports("/proc/net/tcp");
	int server = know("server", MUST(accept(listener, 0, 0)));
	MUST(write(client, "hello", 5));
	say("one was, and has something to read");
	ports("/proc/net/tcp");
	MUST(shutdown(client, SHUT_WR));
	/* Until Linux's other side says that it has seen that. */
	struct tcp_info info = { 0 };
	for (int tries = 0; tries < 300000 && info.tcpi_state != TCP_FIN_WAIT2; tries++) {
		socklen_t l = sizeof info;
		usleep(1000);
		MUST(getsockopt(client, IPPROTO_TCP, TCP_INFO, &info, &l));
	}
	say("the client ends");
	ports("/proc/net/tcp");
	close(second);
	say("the second is gone");
	close(know("accepted late", MUST(accept(listener, 0, 0))));

	int six_listener = make("listener of six", AF_INET6, SOCK_STREAM, 0, 4715);
	MUST(listen(six_listener, 1));
	int any = know("any", MUST(socket(AF_INET6, SOCK_STREAM, 0)));
	struct sockaddr_in6 everywhere = { .sin6_family = AF_INET6, .sin6_port = htons(4716) };
	MUST(bind(any, (struct sockaddr *)&everywhere, sizeof everywhere));
	MUST(listen(any, 1));
	int mapped = make("to a mapped one", AF_INET, SOCK_STREAM, 0, 4717);
	MUST(connect(mapped, four(4716), FOUR));
	know("mapped", MUST(accept(any, 0, 0)));

	int datagram = make("datagram", AF_INET, SOCK_DGRAM, 0, 4720);
	int connected = make("connected datagram", AF_INET, SOCK_DGRAM, 0, 4721);
	MUST(connect(connected, four(4720), FOUR));
	MUST(send(connected, "hi", 2, 0));
	make("datagram without a port", AF_INET, SOCK_DGRAM, 0, 0);
	make("datagram of six", AF_INET6, SOCK_DGRAM, 0, 4722);
	make("lite", AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE, 4723);
	make("lite of six", AF_INET6, SOCK_DGRAM, IPPROTO_UDPLITE, 4724);
	MUST(seteuid(1000));
	make("a user's", AF_INET, SOCK_DGRAM, 0, 4725);
	MUST(seteuid(0));
	all_ports();
	MUST(shutdown(connected, SHUT_WR));
	say("a datagram socket ends");
	ports("/proc/net/udp");
	close(datagram);
	close(client);
	say("the client is gone");
	ports("/proc/net/tcp");
	close(server);
}

static void on_its_way(void)
{
	int pair[2], sent = make("on its way", AF_INET, SOCK_DGRAM, 0, 4730);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	char byte = 'x', room[CMSG_SPACE(sizeof sent)];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof sent);
	memcpy(CMSG_DATA(head), &sent, sizeof sent);
	MUST(sendmsg(pair[0], &msg, 0));
	close(sent);
	say("a socket that only a message holds");
	ports("/proc/net/udp");
	close(pair[0]);
	close(pair[1]);
	say("and that no socket can receive any more");
	ports("/proc/net/udp");
}

static void unix_sockets(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "/tmp/proc_net.sock" };
	struct sockaddr_un hidden = { .sun_family = AF_UNIX, .sun_path = "\0proc_net\0x" };
	int pair[2], listener = know("listener", MUST(socket(AF_UNIX, SOCK_STREAM, 0)));
	unlink(name.sun_path);
	MUST(bind(listener, (struct sockaddr *)&name, sizeof name));
	MUST(listen(listener, 3));
	int client = know("client", MUST(socket(AF_UNIX, SOCK_STREAM, 0)));
	unix_lines();
	MUST(connect(client, (struct sockaddr *)&name, sizeof name));
	int datagram = know("datagram", MUST(socket(AF_UNIX, SOCK_DGRAM, 0)));
	MUST(bind(datagram, (struct sockaddr *)&hidden, sizeof(sa_family_t) + 11));
	int aimed = know("aimed", MUST(socket(AF_UNIX, SOCK_DGRAM, 0)));
	MUST(connect(aimed, (struct sockaddr *)&hidden, sizeof(sa_family_t) + 11));
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	know("pair", pair[0]);
	know("other", pair[1]);
	unix_lines();
	int server = know("server", MUST(accept(listener, 0, 0)));
	close(pair[1]);
	unix_lines();
	close(server);
	close(listener);
	unlink(name.sun_path);
}

static void first_line(const char *path)
{
	char line[512];
	FILE *file = fopen(path, "r");
	if (!file) {
		say("%s: %s", path, strerrorname_np(errno));
		return;
	}
	if (!fgets(line, sizeof line, file))
		line[0] = 0;
	line[strcspn(line, "\n")] = 0;
	say("%s: [%s]", path, line);
	fclose(file);
}

static void files(void)
{
	char link[64] = "";
	TRY(readlink("/proc/net", link, sizeof link - 1));
	say("%s", link);
	const char *heads[] = { "/proc/net/arp", "/proc/net/if_inet6", "/proc/net/netlink", "/proc/net/packet", "/proc/net/raw", "/proc/net/raw6",
				"/proc/net/route", "/proc/net/dev", "/proc/self/net/dev", "/proc/thread-self/net/dev",
				"/proc/self/personality", "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups",
				"/proc/sys/net/core/somaxconn", "/proc/sys/net/core/rmem_default", "/proc/sys/net/core/rmem_max",
				"/proc/sys/net/core/wmem_default", "/proc/sys/net/core/wmem_max", "/proc/sys/net/ipv4/ip_default_ttl",
				"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ip_local_port_range",
				"/proc/sys/net/ipv4/tcp_congestion_control", "/proc/sys/net/ipv4/ip_unprivileged_port_start",
				"/proc/sys/net/ipv6/bindv6only", "/proc/sys/net/ipv6/conf/all/disable_ipv6",
				"/proc/sys/net/ipv6/conf/lo/disable_ipv6", "/proc/sys/net/unix/max_dgram_qlen" };
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
		first_line(heads[i]);
	const char *attributes[] = { "addr_assign_type", "addr_len", "address", "broadcast", "carrier", "dev_id", "dormant", "flags",
				     "ifindex", "iflink", "link_mode", "mtu", "netdev_group", "operstate", "tx_queue_len", "type",
				     "uevent" };
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
		char path[64];
		snprintf(path, sizeof path, "/sys/class/net/lo/%s", attributes[i]);
		first_line(path);
	}
	TRY(open("/proc/net/tcp", O_RDWR | O_CREAT, 0600));
	TRY(open("/proc/net/none", O_RDWR | O_CREAT, 0600));
	TRY(access("/proc/self/net/../stat", F_OK));
	int fd = MUST(socket(AF_NETLINK, SOCK_RAW, 0));
	struct sockaddr_nl { uint16_t family, pad; uint32_t port, groups; } address = { AF_NETLINK, 0, 4711, 1 };
	MUST(bind(fd, (struct sockaddr *)&address, sizeof address));
	char line[256];
	FILE *file = fopen("/proc/net/netlink", "r");
	while (file && fgets(line, sizeof line, file)) {
		unsigned port, groups;
		int kind;
		if (sscanf(line, "%*s %d %u %x", &kind, &port, &groups) == 3 && port == 4711)
			say("netlink: %d %u %x", kind, port, groups);
	}
}

static int bind_as_user(uint16_t port)
{
	int status;
	pid_t child = MUST(fork());
	if (child == 0) {
		MUST(setresuid(1000, 1000, 1000));
		int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
		_exit(bind(fd, four(port), FOUR) == 0 ? 0 : errno);
	}
	MUST(waitpid(child, &status, 0));
	return WEXITSTATUS(status);
}

static void small_ports(void)
{
	const char *knob = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
	HOLDS(bind_as_user(1023) == EACCES);
	int fd = MUST(open(knob, O_WRONLY));
	TRY(write(fd, "80\n", 3));
	HOLDS(bind_as_user(80) == 0);
	HOLDS(bind_as_user(79) == EACCES);
	TRY(pwrite(fd, "65536", 5, 0));
	TRY(pwrite(fd, "-1", 2, 0));
	TRY(pwrite(fd, "x", 1, 0));
	first_line(knob);
	TRY(pwrite(fd, "1024", 4, 0));
	close(fd);
}

int main(void)
{
	on_one_cpu();
	files();
	sockets();
	on_its_way();
	unix_sockets();
	small_ports();
	return 0;
}
