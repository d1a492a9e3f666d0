" Vim syntax file
" Language: levee, packet policies
" Into ~/.vim/syntax/; ftdetect.vim is for ~/.vim/ftdetect/levee.vim

if exists('b:current_syntax')
  finish
endif

syn iskeyword @,48-57,_,-
syn keyword leveeStatement connections cookie count default detect divert drop essential
syn keyword leveeStatement interface limit log on out pass profile protect
syn keyword leveeStatement prove set source test use
syn keyword leveeOption above any as burst by dynamic error expect
syn keyword leveeOption file has hex lease leaves max memory none
syn keyword leveeOption off packet rate rollup sample track
syn keyword leveeTerm ack-number ah arp at checksum code contains data-offset
syn keyword leveeTerm dccp dei dest-options df dns dscp ecn edns-size
syn keyword leveeTerm esp established ether flags flow-label frag frag-offset fragments
syn keyword leveeTerm from gre hop-options icmp icmp-id icmp-rest icmp-seq icmp6
syn keyword leveeTerm id igmp ihl inner inner-dei inner-pcp inner-tpid inner-vlan
syn keyword leveeTerm ip-checksum ip-len ip-options ip-proto ipip ipv4 ipv6 len
syn keyword leveeTerm malformed mf mss name not op opcode options
syn keyword leveeTerm ospf payload pcp port proto proven query reserved
syn keyword leveeTerm response reverse-path routing sack-permitted sctp sender-mac seq stream
syn keyword leveeTerm suffix syn target-mac tcp tcp-flags tcp-options timestamp timestamp-echo
syn keyword leveeTerm to tpid ttl type udp udp-len udplite untagged
syn keyword leveeTerm urgent version vlan window window-scale

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
