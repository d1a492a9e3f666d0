" Vim syntax file
" Language: levee, packet policies
" Into ~/.vim/syntax/; ftdetect.vim is for ~/.vim/ftdetect/levee.vim

if exists('b:current_syntax')
  finish
endif

syn iskeyword @,48-57,_,-
syn keyword leveeStatement connections cookie count default detect divert drop essential
syn keyword leveeStatement greylist interface limit log on out pass profile
syn keyword leveeStatement protect prove redirect set source test use
syn keyword leveeOption a2s above after any as burst by dynamic
syn keyword leveeOption error expect file has hex lease leaves max
syn keyword leveeOption memory none off packet rate rollup sample track
syn keyword leveeOption within
syn keyword leveeTerm ack-number ah arp at checksum code container contains
syn keyword leveeTerm data-offset dccp dei dest-options df dns dscp ecn
syn keyword leveeTerm edns-size esp established ether flags flow-label forwarded frag
syn keyword leveeTerm frag-offset fragments from gid gre group hop-options icmp
syn keyword leveeTerm icmp-id icmp-rest icmp-seq icmp6 id igmp ihl inner
syn keyword leveeTerm inner-dei inner-pcp inner-tpid inner-vlan ip-checksum ip-len ip-options ip-proto
syn keyword leveeTerm ipip ipv4 ipv6 len local malformed mf mss
syn keyword leveeTerm name not op opcode options ospf payload pcp
syn keyword leveeTerm port proto proven query reserved response reverse-path routing
syn keyword leveeTerm sack-permitted sctp sender-mac seq service stream suffix syn
syn keyword leveeTerm target-mac tcp tcp-flags tcp-options timestamp timestamp-echo to tpid
syn keyword leveeTerm ttl type udp udp-len udplite uid untagged urgent
syn keyword leveeTerm user version vlan window window-scale

syn match leveeNumber /\v<\d[0-9a-fA-FxX.:\/-]*>|<\x{1,4}:[0-9a-fA-F:.]*(\/\d+)?/
syn match leveeOperator /[<>=!]=\?/
syn region leveeString start=/"/ end=/"/ oneline
syn match leveeComment /#.*$/ contains=@Spell

hi def link leveeStatement Statement
hi def link leveeOption Keyword
hi def link leveeTerm Type
hi def link leveeNumber Number
hi def link leveeOperator Operator
hi def link leveeString String
hi def link leveeComment Comment

setlocal commentstring=#\ %s
let b:current_syntax = 'levee'
