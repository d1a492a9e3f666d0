package importer

import (
	"levee/internal/lang/importer/match"
)

// AskPath adds a question for the kernel's route to a packet's source. marked: the original asks
// with the packet's mark, which `ip rule` may use; levee asks without it, so this is remarked.
func (p *RuleReader) AskPath(f match.Field, holds, marked bool) {
	p.Both(match.Match{}.With(f, match.Just(uint64(match.Int(holds)))).Settle())
	text := PathText
	if marked {
		text += pathMark
	}
	p.Remark(Changed, text, PathHint)
}

const (
	PathText = "asks the kernel's routes for the source: `reverse-path` does, on a machine that " +
		"forwards; on others it neither holds nor fails, which `levee up` says"
	pathMark = "; it asks without the packet's mark: what has its way back by an `ip rule` with " +
		"fwmark alone, as beside wg-quick, has none"
	PathHint = "where it does not forward: sysctl -w net.ipv4.conf.lo.forwarding=1, and the same " +
		"for ipv6"
)
