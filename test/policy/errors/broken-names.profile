profile broken-names 1 {
    about "a profile with names that stand for nothing"
    parameter port ports { 7777 } "where it listens"
}

pass udp port $prot as "game"
