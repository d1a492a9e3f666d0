profile broken 1 {
    about "a profile with mistakes"
    parameter port ports { 7777 } "where it listens"
    parameter to rate 0/s "of all"
}

interface eth0
set names = { 7777 }
protect udp port $port
pass udp port $port
default drop
