/* Has each call that looks at a socket, or sends by one, wait until what was sent before has arrived. To be included
   behind all other headers, by programs whose threads run on one CPU. */
#include "delivered.h"

#define AFTER_DELIVERY(call) ({ delivered(); call; })
#define accept(...) AFTER_DELIVERY(accept(__VA_ARGS__))
#define accept4(...) AFTER_DELIVERY(accept4(__VA_ARGS__))
#define epoll_wait(...) AFTER_DELIVERY(epoll_wait(__VA_ARGS__))
#define getsockopt(...) AFTER_DELIVERY(getsockopt(__VA_ARGS__))
#define ioctl(...) AFTER_DELIVERY(ioctl(__VA_ARGS__))
#define poll(...) AFTER_DELIVERY(poll(__VA_ARGS__))
#define read(...) AFTER_DELIVERY(read(__VA_ARGS__))
#define recv(...) AFTER_DELIVERY(recv(__VA_ARGS__))
#define recvfrom(...) AFTER_DELIVERY(recvfrom(__VA_ARGS__))
#define recvmmsg(...) AFTER_DELIVERY(recvmmsg(__VA_ARGS__))
#define recvmsg(...) AFTER_DELIVERY(recvmsg(__VA_ARGS__))
#define select(...) AFTER_DELIVERY(select(__VA_ARGS__))
#define send(...) AFTER_DELIVERY(send(__VA_ARGS__))
#define sendmsg(...) AFTER_DELIVERY(sendmsg(__VA_ARGS__))
#define sendto(...) AFTER_DELIVERY(sendto(__VA_ARGS__))
#define shutdown(...) AFTER_DELIVERY(shutdown(__VA_ARGS__))
#define write(...) AFTER_DELIVERY(write(__VA_ARGS__))
