package logline

import "strings"

// Kind is a row of the library: the messages by which a program tells of one kind of attempt.
type Kind struct {
	Name     string
	Programs []string // that write them to syslog; "NAME/" is all that begin so; none: any line
	What     string   // in a few words
	Patterns []string
}

// Library is all rows, in the order of the documentation.
func Library() []Kind { return library }

// Named is the row of a name.
func Named(name string) (Kind, bool) {
	for _, k := range library {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// Writes tells whether a program is one of the row's.
func (k *Kind) Writes(program string) bool { return OneOf(k.Programs, program) }

// OneOf tells whether a program is one of a list; "postfix/" is each that begins so.
func OneOf(programs []string, program string) bool {
	for _, p := range programs {
		if p == program || strings.HasSuffix(p, "/") && strings.HasPrefix(program, p) {
			return true
		}
	}
	return false
}

var (
	sshd    = []string{"sshd", "sshd-session", "sshd-auth"}
	postfix = []string{"postfix/"}
)

// The messages are those of the sources of each program. What a client chooses is <text>, or
// <quoted> where the server writes quotes in it otherwise.
var library = []Kind{
	{"sshd-failed", sshd, "a password was wrong (OpenSSH), one event for each", []string{
		"Failed password for <text> from <addr> port <number> ssh2",
		"Failed keyboard-interactive/pam for <text> from <addr> port <number> ssh2",
	}},
	{"sshd-invalid", sshd, "a user that there is not, or that may not log in (OpenSSH)", []string{
		"Invalid user <text> from <addr> port <number>",
		"Invalid user <text> from <addr>", // before 7.3
		"User <text> from <addr> not allowed because <text>",
	}},
	{"sshd-closed", sshd, "a client left or was sent away before it had logged in (OpenSSH)",
		[]string{
			"Connection closed by authenticating user <text> <addr> port <number> [preauth]",
			"Connection closed by invalid user <text> <addr> port <number> [preauth]",
			"Connection reset by authenticating user <text> <addr> port <number> [preauth]",
			"Connection reset by invalid user <text> <addr> port <number> [preauth]",
			"Disconnected from authenticating user <text> <addr> port <number> [preauth]",
			"Disconnected from invalid user <text> <addr> port <number> [preauth]",
			"error: maximum authentication attempts exceeded for <text> from <addr> " +
				"port <number> ssh2 [preauth]",
			"Timeout before authentication for <addr> port <number>",
			"Timeout before authentication for connection from <addr> to <text>",
		}},
	{"sshd-probe", sshd, "what is no client of SSH, or an outdated one (OpenSSH)", []string{
		"Did not receive identification string from <addr>",
		"Did not receive identification string from <addr> port <number>",
		"Bad protocol version identification '<text>' from <addr> port <number>",
		"banner exchange: Connection from <addr> port <number>: <text>",
		"Unable to negotiate with <addr> port <number>: <text>",
		"error: kex_exchange_identification: banner line contains invalid characters from <addr>",
		"ssh_dispatch_run_fatal: Connection from <addr> port <number>: <text>",
	}},
	{"dropbear-failed", []string{"dropbear"}, "a password was wrong, or a user unknown (Dropbear)",
		[]string{
			"Bad password attempt for '<text>' from <addr>:<number>",
			"Bad PAM password attempt for '<text>' from <addr>:<number>",
			"Login attempt for nonexistent user from <addr>:<number>",
			"Login attempt for nonexistent user '<text>' from <addr>:<number>",
		}},
	{"nginx-401", nil, "a password was missing or wrong, in the access log; Apache's too", []string{
		access("401"),
	}},
	{"nginx-404", nil, "what is not there was asked for, in the access log; Apache's too", []string{
		access("404"),
	}},
	{"nginx-4xx", nil, "any error of a client, in the access log; Apache's too", []string{
		access("<4xx>"),
	}},
	{"nginx-auth", nil, "a password was wrong, in the error log; nginx-401 is not ambiguous",
		[]string{
			nginxError("user <quote><text><quote>: password mismatch, client: <addr>, server: " +
				"<text>"),
			nginxError("user <quote><text><quote> was not found in <quote><text><quote>, " +
				"client: <addr>, server: <text>"),
		}},
	{"nginx-limit", nil, "limit_req or limit_conn of nginx has struck, in the error log", []string{
		nginxError("limiting requests, excess: <word> by zone <quote><word><quote>, client: " +
			"<addr>, " +
			"server: <text>"),
		nginxError("limiting connections by zone <quote><word><quote>, client: <addr>, server: " +
			"<text>"),
	}},
	{"postfix-sasl", postfix, "a password was wrong (Postfix)", []string{
		"warning: <word>[<addr>]: SASL <word> authentication failed: <text>",
		"warning: <word>[<addr>]: SASL <word> authentication failed",
		"warning: <word>[<addr>]:<number>: SASL <word> authentication failed: <text>",
	}},
	{"postfix-reject", postfix, "a mail was refused: relaying, an unknown user, a blocklist " +
		"(Postfix)",
		[]string{
			"NOQUEUE: reject: <word> from <word>[<addr>]: 5<text>",
			"NOQUEUE: reject: <word> from [<addr>]:<number>: 5<text>", // postscreen
			"NOQUEUE: reject: <word> from <word>[<addr>]:<number>: 5<text>",
		}},
	{"postfix-lost", postfix, "a client broke off while it logged in, or made too many errors " +
		"(Postfix)",
		[]string{
			"lost connection after AUTH from <word>[<addr>]",
			"lost connection after AUTH from <word>[<addr>]:<number>",
			"too many errors after <word> from <word>[<addr>]",
			"improper command pipelining after <word> from <word>[<addr>]: <text>",
			"PREGREET <number> after <word> from [<addr>]:<number>: <text>",
		}},
	{"dovecot-auth", []string{"dovecot"}, "a password was wrong (Dovecot)", []string{
		"<word>-login: <text>(auth failed, <number> attempts in <number> secs): <text>, " +
			"rip=<addr>, " +
			"lip=<text>",
	}},
}

// access is a line of an access log in the common or the combined form.
func access(status string) string {
	return "<addr> <word> <quoted> [<word> <word>] <quote><quoted><quote> " + status + " <text>"
}

func nginxError(message string) string {
	return "<word> <word> [<word>] <word> <word> " + message
}
