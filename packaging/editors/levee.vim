" Vim syntax file
" Language: levee, packet policies
" Into ~/.vim/syntax/, with: au BufRead,BufNewFile *.levee setfiletype levee

if exists('b:current_syntax')
  finish
endif

syn iskeyword @,48-57,_,-
syn keyword leveeStatement pass drop count limit log cookie divert protect interface set default essential on source detect test
syn keyword leveeOption file dynamic max lease rollup off error packet expect leaves hex by has as rate burst memory sample above track
syn keyword leveeOption any none
syn keyword leveeTerm ack-number ah arp checksum code data-offset dccp dei dest-options df
syn keyword leveeTerm at dscp ecn esp established ether flags flow-label frag frag-offset fragments from
syn keyword leveeTerm gre hop-options icmp icmp-id icmp-rest icmp-seq icmp6 id igmp ihl
syn keyword leveeTerm inner inner-dei inner-pcp inner-tpid inner-vlan ip-checksum ip-len
syn keyword leveeTerm ip-options ip-proto ipip ipv4 ipv6 len malformed mf mss not op options
syn keyword leveeTerm ospf payload pcp port proto reserved routing sack-permitted sctp
syn keyword leveeTerm sender-mac seq suffix syn target-mac tcp tcp-flags tcp-options timestamp
syn keyword leveeTerm timestamp-echo to tpid ttl type udp udp-len udplite untagged urgent
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
