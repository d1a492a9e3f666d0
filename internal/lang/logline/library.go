package logline

import (
	"slices"
	"strings"
)

// Format is a row of the library: the messages by which a program tells of one kind of attempt.
type Format struct {
	Name string
	// Programs write them to syslog; "NAME/" and "NAME-" are all that begin so; none: any line.
	Programs []string
	What     string // in a few words
	Patterns []string
	// Except are messages that Patterns describe too, and that are no client's fault: a service of
	// the machine is down.
	Except []string
}

// Library is all rows, in the order of the documentation.
func Library() []Format { return library }

// Named is the row of a name.
func Named(name string) (Format, bool) {
	for _, k := range library {
		if k.Name == name {
			return k, true
		}
	}
	return Format{}, false
}

// OneOf tells whether a program is one of a list; "postfix/" and "postfix-" are each that begins
// so.
func OneOf(programs []string, program string) bool {
	for _, p := range programs {
		begins := strings.HasSuffix(p, "/") || strings.HasSuffix(p, "-")
		if p == program || begins && strings.HasPrefix(program, p) {
			return true
		}
	}
	return false
}

var (
	sshd    = []string{"sshd", "sshd-session", "sshd-auth"}
	postfix = []string{"postfix/", "postfix-"} // a second instance is postfix-NAME/
	dovecot = []string{"dovecot"}
)

// Where an address stands, with the client's port behind it or without.
const (
	addr   = "<addr><| port <number>>"
	client = "<word>[<addr>]<|:<number>>" // of Postfix, with the name of the host
)

// The messages are those of the sources of each program, and of runs of it. What a client chooses
// is <text>, or <quoted> where the server writes quotes in it otherwise. No second <text> stands
// where a client could hide by writing an address.
var library = slices.Concat([]Format{
	{Name: "sshd-failed", Programs: sshd,
		What: "a password was wrong (OpenSSH); where PAM asks, one may count twice",
		Patterns: []string{
			ofSSH("Failed <password|keyboard-interactive<|/pam|/bsdauth>|unknown> for <text> " +
				"from <addr> port <number><| ssh1| ssh2>"),
			ofSSH("Failed password for <text> from <addr> port <number> ssh1: ruser <word>"),
			ofSSH("Failed <none|publickey> for <invalid|illegal> user <text> from <addr> port " +
				"<number> ssh2<|: <word> <word>>"),
			ofSSH("Failed hostbased for <text> from <addr> port <number> ssh2: <word> <word>, " +
				"client user <text>"),
			ofSSH("PAM: <A|a>uthentication <failure|error> for <text> from <addr><| via <word>>< " +
				"|>"),
			ofSSH("PAM: <User not known to the underlying authentication module|Permission " +
				"denied|Have exhausted maximum number of retries for service> for <text> from " +
				"<addr>< |>"),
		}},
	{Name: "sshd-invalid", Programs: sshd,
		What: "a user that there is not, or that may not log in (OpenSSH)",
		Patterns: []string{
			ofSSH("<Invalid|Illegal> user <text> from " + addr),
			ofSSH("User <text> from <addr> not allowed because <text>"),
			ofSSH("ROOT LOGIN REFUSED FROM " + addr),
		}},
	{Name: "sshd-closed", Programs: sshd,
		What: "a client left or was sent away before it had logged in (OpenSSH)",
		Patterns: []string{
			ofSSH("<Connection closed by|Connection reset by|Disconnected from> <authenticating|" +
				"invalid> user <text> <addr> port <number>"),
			ofSSH("Disconnecting <authenticating|invalid> user <text> <addr> port <number>: " +
				"<Too many authentication failures|no authentication methods enabled>"),
			// sshd logs 100 bytes of it, which end in the names where these are long.
			ofSSH("Disconnecting <authenticating|invalid> user <text> <addr> port <number>: " +
				"Change of username or service not allowed: (<text>"),
			ofSSH("maximum authentication attempts exceeded for <text> from <addr> port <number> " +
				"ssh2"),
			"<|error: >Received disconnect from " + addr + ":<| ><number>: <text> [preauth]",
			// Client programs say so with 3, 13 and 14 (RFC 4253, 11.1) when no password was right.
			"<|error: >Received disconnect from " + addr + ":<| ><3|13|14>: <text>",
			ofSSH("Timeout before authentication for " + addr),
			ofSSH("Timeout before authentication for connection from <addr> to <text>"),
		}},
	{Name: "sshd-penalty", Programs: sshd,
		What: "turned away for what its address had done before (OpenSSH 9.8 and newer)",
		Patterns: []string{
			"drop connection #<number> from [<addr>]:<number> on [<word>]:<number> penalty: <text>",
		}},
	{Name: "sshd-probe", Programs: sshd,
		What: "what is no client of SSH, an outdated one, or one that says nothing (OpenSSH)",
		Patterns: []string{
			ofSSH("Did not receive identification string from " + addr),
			ofSSH("Bad protocol version identification '<text>' from " + addr),
			ofSSH("banner exchange: Connection from <addr> port <number>: <text>"),
			ofSSH("Unable to negotiate with " + addr + ": <text>"),
			ofSSH("Magic value check failed (<number>) on obfuscated handshake from <addr> port " +
				"<number>"), // of a patched sshd
			ofSSH("Protocol major versions differ for <addr> port <number>: <text>"),
			ofSSH("kex_exchange_identification: banner line contains invalid characters from " +
				"<addr>"),
			ofSSH("ssh_dispatch_run_fatal: Connection from <addr> port <number>: <text>"),
			// Once somebody has said who he is, his name stands before the address. Before 7.5 it
			// never did, and the same message, without a port, ended sessions.
			ofSSH("<Connection closed by|Connection reset by|Disconnected from> <addr> port " +
				"<number>"),
			"<Connection closed by|Connection reset by|Disconnected from> <addr> [preauth]",
			ofSSH("refused connect from <text> (<addr>)"),
		}},
	{Name: "dropbear-failed", Programs: []string{"dropbear"},
		What: "a password was wrong, or a user unknown (Dropbear)",
		Patterns: []string{
			ofDropbear("<B|b>ad <|PAM >password attempt for '<text>' from <addr>:<number>"),
			ofDropbear("<L|l>ogin attempt for nonexistent user<| '<text>'> from <addr>:<number>"),
		}},
	{Name: "dropbear-closed", Programs: []string{"dropbear"},
		What: "a client was sent away, or left, before it had logged in (Dropbear)",
		Patterns: []string{
			ofDropbear("<E|e>xit before auth from <<<addr>:<number>>: <text>"),
			ofDropbear("<E|e>xit before auth (user '<text>', <number> fails): Max auth tries " +
				"reached - user '<text>' from <addr>:<number>"), // before 2020
		}},
	{Name: "pam-failed",
		What: "a password was wrong, as PAM tells for any program; the program may tell it too",
		Patterns: []string{
			// Who asks chooses ruser, and with some modules user.
			"<word> authentication failure; logname=<text> uid=<number> euid=<number> tty=<text> " +
				"ruser=<text> rhost=<addr>< |>< user=<text>|>",
		}},
	{Name: "nginx-401",
		What:     "a password was missing or wrong, in the access log; Apache's too",
		Patterns: access("401")},
	{Name: "nginx-404",
		What:     "what is not there was asked for, in the access log; Apache's too",
		Patterns: access("404")},
	{Name: "nginx-4xx",
		What:     "any error of a client, in the access log; Apache's too",
		Patterns: access("<4xx>")},
	{Name: "nginx-auth",
		What: "a password was wrong, in the error log; nginx-401 is not ambiguous",
		Patterns: []string{
			nginxError("user <quote><text><quote>: password mismatch"),
			nginxError("user <quote><text><quote><|:> was not found in <quote><text><quote>"),
			nginxError("client used invalid token: <text>"),
			nginxError("client login failed: <quote><text><quote> while in http auth " +
				"state"), // mail
		}},
	{Name: "nginx-limit",
		What: "limit_req or limit_conn of nginx has struck, in the error log",
		Patterns: []string{
			nginxError("limiting requests, excess: <word> by zone <quote><word><quote>"),
			nginxError("limiting connections by zone <quote><word><quote>"),
		}},
	{Name: "nginx-probe",
		What: "what is no client of TLS or HTTP, or asks for a file that is not there or " +
			"forbidden, in the error log",
		Patterns: []string{
			nginxError("SSL_do_handshake() failed (<text>) while SSL handshaking"),
			nginxError("client sent <plain HTTP request to HTTPS port|invalid method|invalid " +
				"request|invalid host header> while <text>"),
			nginxError("access forbidden by rule"),
			nginxError("<open() |><quote><text><quote> <failed|is not found> (2: No such file or " +
				"directory)"),
		}},
	{Name: "apache-auth",
		What: "a password was wrong, or access denied, in the error log (Apache)",
		Patterns: apacheError("user <text><: authentication failure for |: authorization failure "+
			"for |: password mismatch| not found><text>",
			"client <denied by server configuration|used wrong authentication scheme>: <text>",
			"Got error 'PHP message: user <text> authentication failure for Baikal'<|, referer: "+
				"<text>>",
			"Authorization of user <text> to access <text> failed, reason: <text>",
			"<|Digest: >user `<text>' in realm `<text>' not found: <text>",
			"Digest: user <text>: password mismatch: <text>",
			"<|Digest: ><invalid <qop|nonce>|unknown algorithm|realm mismatch - got> <text>")},
	{Name: "apache-probe",
		What: "a file, a script or a host that is not there was asked for, or no HTTP was " +
			"spoken, in the error log (Apache)",
		Patterns: apacheError("File does not exist: <text>",
			"script <'<text>' |>not found or unable to stat<text>",
			"Got error 'Primary script unknown<text>",
			"Invalid <method|URI> in request <text>",
			"request failed: <URI too long|erroneous characters after protocol string|invalid "+
				"characters in URI><text>",
			"<Hostname <text> provided|No hostname was provided> via SNI<text>")},
	{Name: "lighttpd-auth",
		What: "a password was wrong, in the error log (lighttpd)",
		Patterns: []string{
			"<word> <word> <|(><word>) <password doesn't match for <text>|digest: auth " +
				"failed<text>|get_password failed><,|> IP: <addr>",
		}},
	{Name: "postfix-sasl", Programs: postfix,
		What: "a password was wrong (Postfix)",
		Patterns: []string{
			"warning: " + client + ": SASL <word> authentication failed<|:<text>>",
		},
		Except: []string{
			"warning: " + client + ": SASL <word> authentication failed: <Connection lost to " +
				"authentication server|no mechanism available><text>",
		}},
	{Name: "postfix-reject", Programs: postfix,
		What: "a mail was refused: relaying, an unknown user, a blocklist (Postfix)",
		Patterns: []string{
			rejected(client + ": 5<text>"),
			rejected("[<addr>]:<number>: 5<text>"), // postscreen
			// Of what is refused for a time only: not a greylist, and not that the server is busy.
			rejected(client + ": 4<number> 4.<number>.<number> <text>: <Helo command rejected: " +
				"<text>|Sender address rejected: Domain not found<text>|Relay access " +
				"denied<text>>"),
			rejected(client + ": 4<number> 4.<number>.<number> <Client host rejected: cannot " +
				"find your <text>|Service unavailable; Client host [<word>] blocked using <text>>"),
			rejected("[<addr>]:<number>: 4<number> 4.7.1 Service unavailable; client [<word>] " +
				"blocked using <text>"),
			"<word>: milter-reject: <word> from " + client + ": 5<text>",
		}},
	{Name: "postfix-lost", Programs: postfix,
		What: "a client broke off while it logged in, made too many errors, or spoke no SMTP " +
			"(Postfix)",
		Patterns: []string{
			"<|<word>: >lost connection after AUTH from " + client,
			"<|<word>: >too many errors after <word> from " + client,
			"<|<word>: >improper command pipelining after <word> from " + client + "<|:<text>>",
			"<|<word>: >non-SMTP command from " + client + ": <text>",
			"disconnect from " + client + " <helo|ehlo>=<number><| starttls=<number>> " +
				"auth=0/<number> <text>",
			"PREGREET <number> after <word> from [<addr>]:<number>: <text>",
			"COMMAND <TIME|COUNT|LENGTH|PIPELINING> LIMIT from [<addr>]:<number> after <word>",
			"<BARE NEWLINE|NON-SMTP COMMAND|COMMAND PIPELINING> from [<addr>]:<number> after " +
				"<text>",
		}},
	{Name: "postfix-probe", Programs: postfix,
		What: "a client left before it had said what for (Postfix)",
		Patterns: []string{
			"<|<word>: >lost connection after <CONNECT|EHLO|HELO|STARTTLS|UNKNOWN> from " + client,
			"HANGUP after <word> from [<addr>]:<number> in <text>",
		}},
	{Name: "dovecot-auth", Programs: dovecot,
		What: "a password was wrong (Dovecot)",
		Patterns: []string{
			ofLogin("<|proxy dest >auth failed"),
			ofLogin("tried to use <disabled|disallowed|unsupported> <plaintext auth|cleartext " +
				"auth|auth mechanism>"),
		}},
	{Name: "dovecot-passdb", Programs: dovecot,
		What: "a password was wrong or a user unknown, as auth_verbose tells (Dovecot)",
		Patterns: []string{
			"<text><bsdauth|dict|ldap|lua|oauth2|pam|passwd|passwd-file|shadow|sql|static>" +
				"(<text>,<addr><|,<|<<<word>>>): " + passdb,
			// since 2.4
			"auth<|-worker>(<text>,<addr><|,sasl:<word>>)<<<word>: <|request [<number>]: " +
				"><word>: " +
				passdb,
		}},
	{Name: "dovecot-probe", Programs: dovecot,
		What: "a client left before it had tried a password (Dovecot)",
		Patterns: []string{
			ofLogin("<no auth attempts|disconnected before auth was ready|client didn't finish " +
				"SASL auth|auth aborted by client|disconnected during TLS handshake>"),
		}},
}, mailFormats, fileFormats, webFormats)

// ofDropbear is a message of Dropbear, which writes its number and the time itself with -E, as
// where the journal reads it.
func ofDropbear(message string) string {
	return "<|[<number>] <word> < |><number> " + clock + " >" + message
}

// ofSSH is a message of sshd. How grave it is may stand before it, and behind it that the process
// has few rights yet.
func ofSSH(message string) string { return "<|error: |fatal: >" + message + "<| [preauth]>" }

// access is a line of an access log in the common or the combined form, behind the host that was
// asked where the log tells that (vhost_combined).
func access(status string) []string {
	line := "<addr> <word> <quoted> [<word> <word>] <quote><quoted><quote> " + status + " <text>"
	return []string{line, "<word> " + line}
}

// nginxError is a message about a client in the error log of nginx.
func nginxError(message string) string {
	return "<word> <word> [<word>] <word> <word> " + message + ", client: <addr>, server: <text>"
}

// apacheError are messages about a client in Apache's error log, without the time: of 2.2, and of
// 2.4, which mostly tells the port, and calls a client of HTTP/2 a remote.
func apacheError(messages ...string) (out []string) {
	const since24 = "[<word>] [pid <number><|:tid <number>>] [<client|remote> "
	for _, m := range messages {
		out = append(out, "[<word>] [client <addr>] "+m,
			since24+"<|[><addr><|]>:<number>] <|AH<number>: >"+m,
			since24+"<addr4>] <|AH<number>: >"+m)
	}
	return out
}

// rejected is a message of Postfix that refuses something.
func rejected(rest string) string { return "<word>: reject: <word> from " + rest }

// ofLogin is a message of Dovecot about a client that has not logged in. What the client has said
// of itself stands before its address.
func ofLogin(why string) string {
	return "<imap|pop3|managesieve|submission>-login: <|Info: ><text>(" + why +
		"<text>rip=<last-addr><|, <text>>"
}

// passdb lists the reasons for which Dovecot did not take a password. It says otherwise that it
// could not ask.
const passdb = "<unknown user|Password mismatch|invalid credentials|pam_authenticate() failed: " +
	"<Authentication failure|User not known|Permission denied>><text>"
