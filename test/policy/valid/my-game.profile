profile my-game 3 {
    # A comment in the head.
    about "A game of one's own"
    takes "floods from one address"
    misses "all else" # and more

    parameter port ports { 7777, 8000-8010 } "where the servers listen"
    parameter friends addresses 192.0.2.0/28 "who is never limited"
    parameter quickly rate 20/s "from one address"
    parameter many number 10 "as a burst"
}

set $banned = dynamic(max 1000, lease 1h)

prove "number" udp port { $port, 9000 } reply payload at 0 41 echo 4 bytes at 1 in request at 1
drop udp from $banned port $port as "banned"
pass udp from { $friends, 198.51.100.1 } port $port as "friend"
limit udp port $port rate $quickly burst $many by source as "too fast"
pass udp port $port as "game"

test "a friend is never limited" {
    packet udp from 192.0.2.1 port 7777 payload "hello" expect pass by "friend"
    packet udp from 192.0.2.99 port 8001 payload "hello" expect pass by "game"
    set banned has 192.0.2.99
    packet udp from 192.0.2.99 port 8001 payload "hello" expect drop by "banned"
}
