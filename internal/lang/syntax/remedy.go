package syntax

import (
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/foreign"
)

// termRemedy says what the word of a term was probably meant to be. The message is "" for the
// ordinary one.
func termRemedy(word string) (msg string, r foreign.Remedy) {
	lower := strings.ToLower(word)
	if r, ok := foreign.Words[lower]; ok {
		return "", r
	}
	switch {
	case word == "type":
		return "", foreign.Advice("say which protocol: icmp type 8, or icmp6 type 128.")
	case strings.HasPrefix(word, "@"), strings.HasPrefix(word, "$"):
		return "", foreign.Advice("a set is named without " + word[:1] +
			": from " + diag.Clip(word[1:]) + ".")
	case oneOf("echo-request echo-reply destination-unreachable time-exceeded packet-too-big "+
		"parameter-problem redirect ping", lower):
		return "", foreign.Advice("write: icmp type " +
			strings.Replace(lower, "ping", "echo-request", 1) + ", or icmp6 type.")
	case oneOf("fin rst psh ack urg ece cwr", lower):
		return "", foreign.Advice("flags stand in one term, with commas between them: flags syn," +
			strings.Replace(lower, "syn", "ack", 1) + ".")
	case word == "code":
		return "", foreign.Advice("a code stands behind its type and a slash: icmp type 3/4.")
	case word == "any":
		return "", foreign.LeaveOut("a rule without addresses matches any packet; leave \"any\" " +
			"out, or write from any.")
	case strings.HasPrefix(word, "//"), strings.HasPrefix(word, "/*"):
		return "", foreign.Advice("a comment starts with #.")
	case strings.HasPrefix(word, "-"):
		return "", foreign.Advice("levee has words instead of options: tcp from 192.0.2.0/24 " +
			"port 80.")
	case oneOf("/s /m /h /d pps kpps mpps bit/s kbit/s mbit/s gbit/s",
		strings.TrimLeft(lower, "0123456789.")):
		return "", foreign.Advice("write the word rate in front: limit udp port 53 rate " +
			diag.Clip(word) + " by source.")
	case isDigits(word):
		return "", foreign.LeaveOut("say what the number is: port " +
			diag.Clip(word) + ", len " + diag.Clip(word) +
			", ttl " + diag.Clip(word) + ", ...")
	case looksLikeAddress(word):
		return "", foreign.LeaveOut("say which side: from " + diag.Clip(word) + ", or to " +
			diag.Clip(word) + ".")
	case lower != word && isKeyword[lower]:
		return "", foreign.Remedy{Hint: "words are lower case: " + lower + ".", Term: lower}
	case isStatement[word]:
		return "", foreign.Advice("start a new line for the next statement.")
	}
	if m := diag.Nearest(word, strings.Fields(termWords)); field.Behind(m) != nil {
		return "", foreign.Advice(meant(m))
	} else if m != "" {
		return "", foreign.Meant(m)
	}
	return "", foreign.Advice("terms are from, to, port, a protocol such as tcp, icmp type, len, " +
		"...; `levee help matches` lists all.")
}
