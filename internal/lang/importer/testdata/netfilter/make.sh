#!/bin/sh
# Makes the dumps in this directory with the real tools, in a namespace of its own:
#   unshare -n sh make.sh
set -e
ip link set lo up
ipset create blocked hash:net family inet
ipset add blocked 192.0.2.0/24; ipset add blocked 198.51.100.7; ipset add blocked 192.0.2.128/25 nomatch
ipset create svc hash:ip,port; ipset add svc 203.0.113.5,tcp:80; ipset add svc 203.0.113.5,udp:53; ipset add svc 203.0.113.6,tcp:80
ipset create ports bitmap:port range 0-1024; ipset add ports 22; ipset add ports 80-90; ipset add ports 443
ipset create f2b hash:ip timeout 600
ipset create v6 hash:net family inet6; ipset add v6 2001:db8:bad::/48
ipset create all list:set; ipset add all blocked; ipset add all f2b
iptables -P INPUT DROP; iptables -N web; iptables -N chk
A="iptables -A"
$A INPUT -i lo -j ACCEPT
$A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
$A INPUT -m conntrack --ctstate INVALID -j DROP
$A INPUT -m set --match-set blocked src -m comment --comment "known \"bad\" nets" -j DROP
$A INPUT -m set --match-set f2b src -j REJECT
$A INPUT -m set --match-set svc dst,dst -j ACCEPT
$A INPUT -p tcp -m set --match-set ports dst -j ACCEPT
$A INPUT -p tcp -m conntrack --ctstate NEW -m tcp --dport 22 -j ACCEPT
$A INPUT -s 10.0.0.0/8 -j chk
$A INPUT -p tcp -m multiport --dports 80,443,8000:8100 -j web
$A INPUT -p icmp --icmp-type echo-request -m limit --limit 5/sec -j ACCEPT
$A INPUT -p icmp --icmp-type 3/4 -j ACCEPT
$A INPUT -p tcp ! --syn -j DROP
$A INPUT -p tcp --tcp-flags ALL NONE -j DROP
$A INPUT -m iprange --src-range 192.168.1.10-192.168.1.20 -j ACCEPT
$A INPUT -p udp -m length --length 0:27 -j DROP
$A INPUT -m ttl --ttl-lt 5 -j DROP
$A INPUT -m dscp --dscp-class EF -j ACCEPT
$A INPUT -f -j DROP
$A INPUT -m mac --mac-source 02:00:00:00:00:01 -j ACCEPT
$A INPUT ! -s 172.16.0.0/12 -p udp --dport 161 -j DROP
$A INPUT -p udp -m multiport --ports 53,123 -j ACCEPT
$A INPUT -m addrtype --dst-type MULTICAST -j DROP
$A INPUT -m recent --name x --update --seconds 60 -j DROP
$A INPUT -j LOG --log-prefix "drop: "
$A web -s 192.0.2.9 -j RETURN
$A web -j ACCEPT
$A chk -p tcp --dport 25 -j DROP
$A chk -p tcp --dport 26 -j RETURN
$A chk -g web
iptables -t raw -A PREROUTING -s 203.0.113.66 -j DROP
iptables -t nat -A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 80
iptables -A FORWARD -o eth1 -j ACCEPT
ip6tables -P INPUT DROP
ip6tables -A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 135 -m hl --hl-eq 255 -j ACCEPT
ip6tables -A INPUT -s 2001:db8::/32 -p tcp --dport 443 -j ACCEPT
ip6tables -A INPUT -m set --match-set v6 src -j DROP
iptables-save > v4.save; ip6tables-save > v6.save; ipset save > ipset.save
nft flush ruleset
nft -f ruleset.nft && nft -j list ruleset > ruleset.json
nft flush ruleset
nft -f matches.nft && nft -j list ruleset > matches.json
