profile broken-rules 1 {
    about "a profile whose rules have a mistake that shows where they are resolved"
    parameter port ports { 7777 } "where it listens"
}

set $bad = { 192.0.2.0/33 }
pass tcp port $port len > 70000 as "game"
