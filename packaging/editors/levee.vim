" Vim syntax file
" Language: levee, packet policies
" Into ~/.vim/syntax/; ftdetect.vim is for ~/.vim/ftdetect/levee.vim

if exists('b:current_syntax')
  finish
endif

syn iskeyword @,48-57,_,-
syn keyword leveeStatement connections cookie count default detect divert drop essential
syn keyword leveeStatement interface limit log on pass protect set source
syn keyword leveeStatement test
syn keyword leveeOption above any as burst by dynamic error expect
syn keyword leveeOption file has hex lease leaves max memory none
syn keyword leveeOption off packet rate rollup sample track
syn keyword leveeTerm ack-number ah arp at checksum code data-offset dccp
syn keyword leveeTerm dei dest-options df dscp ecn esp established ether
syn keyword leveeTerm flags flow-label frag frag-offset fragments from gre hop-options
syn keyword leveeTerm icmp icmp-id icmp-rest icmp-seq icmp6 id igmp ihl
syn keyword leveeTerm inner inner-dei inner-pcp inner-tpid inner-vlan ip-checksum ip-len ip-options
syn keyword leveeTerm ip-proto ipip ipv4 ipv6 len malformed mf mss
syn keyword leveeTerm not op options ospf payload pcp port proto
syn keyword leveeTerm proven reserved routing sack-permitted sctp sender-mac seq suffix
syn keyword leveeTerm syn target-mac tcp tcp-flags tcp-options timestamp timestamp-echo to
syn keyword leveeTerm tpid ttl type udp udp-len udplite untagged urgent
syn keyword leveeTerm version vlan window window-scale

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
