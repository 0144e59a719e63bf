#!/bin/sh
# A server of Redis that gets a million values of 900 bytes, more than 1 GiB with what it keeps beside them, and drops them all.
socket=/tmp/redis.sock
cli() { redis-cli -s $socket "$@"; }
redis-server --port 0 --unixsocket $socket --save '' --dir /tmp --daemonize yes --enable-debug-command yes > /dev/null
tries=300
until [ "$(cli ping 2> /dev/null)" = PONG ]; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || exit 1
    sleep 0.1
done
cli debug populate 1000000 key 900 > /dev/null
[ "$(cli dbsize)" = 1000000 ] || exit 1
[ "$(cli info memory | sed -n 's/^used_memory:\([0-9]*\).*/\1/p')" -gt 1000000000 ] || exit 1
cli flushall > /dev/null
[ "$(cli dbsize)" = 0 ] || exit 1
echo freed
sleep 10
