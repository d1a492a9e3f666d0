profile broken-sets 1 {
    about "a profile with a set that has the name of a parameter"
    parameter port ports { 7777 } "where it listens"
}

set $port = { 7777 }
pass udp port $port as "game"
