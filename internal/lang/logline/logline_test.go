package logline

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// find judges a line as a source with a row of the library does.
func find(t *testing.T, name, line string) (netip.Addr, Result) {
	t.Helper()
	k, ok := Named(name)
	if !ok {
		t.Fatalf("there is no %q", name)
	}
	h, message := Split([]byte(line), now)
	if len(k.Programs) > 0 && !OneOf(k.Programs, h.Program) {
		return netip.Addr{}, Other
	}
	if _, r := compiled(t, k.Except).Match(message); r != Other {
		return netip.Addr{}, Other
	}
	return compiled(t, k.Patterns).Match(message)
}

var ready = map[string]*Pattern{}

func compiled(t *testing.T, texts []string) (all Patterns) {
	t.Helper()
	for _, text := range texts {
		if ready[text] == nil {
			p, err := Compile(text)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			ready[text] = p
		}
		all = append(all, ready[text])
	}
	return all
}

// TestTheLibraryReadsRealLines has one line at least of each pattern, from several versions of the
// programs and of syslog daemons. Each is of 203.0.113.9 or of 2001:db8::9.
func TestTheLibraryReadsRealLines(t *testing.T) {
	const (
		old = "Nov 25 01:31:58 mail sshd[811]: "
		iso = "2026-11-25T01:31:58.123456+01:00 mail sshd-session[811]: "
		nu  = "<38>1 2026-11-25T01:31:58.123456Z mail sshd 811 - - "
		pf  = "Nov  5 01:31:58 mail postfix/smtpd[811]: "
		ps  = "Nov  5 01:31:58 mail postfix/postscreen[811]: "
		ng  = "2026/11/25 01:31:58 [error] 12#12: *345 "
	)
	for _, c := range []struct{ format, line string }{
		{"sshd-failed", old + "Failed password for root from 203.0.113.9 port 4711 ssh2"},
		{"sshd-failed", iso + "Failed password for invalid user admin from 2001:db8::9 port 1 " +
			"ssh2"},
		{"sshd-failed", nu + "Failed password for invalid user  from 203.0.113.9 port 4711 ssh2"},
		{"sshd-failed", "<38>Nov 25 01:31:58 mail sshd[811]: Failed keyboard-interactive/pam for " +
			"invalid user test from 203.0.113.9 port 4711 ssh2"},
		{"sshd-invalid", old + "Invalid user oracle from 203.0.113.9 port 4711"},
		{"sshd-invalid", old + "Invalid user oracle from 203.0.113.9"},
		{"sshd-invalid", old + "User backup from 203.0.113.9 not allowed because not listed in " +
			"AllowUsers"},
		{"sshd-closed", old + "Connection closed by authenticating user root 203.0.113.9 port " +
			"4 [preauth]"},
		{"sshd-closed", old + "Connection closed by invalid user pi 203.0.113.9 port 4 [preauth]"},
		{"sshd-closed", old + "Connection reset by authenticating user root 203.0.113.9 port 4 " +
			"[preauth]"},
		{"sshd-closed", old + "Connection reset by invalid user a 203.0.113.9 port 4 [preauth]"},
		{"sshd-closed", iso + "Disconnected from authenticating user root 203.0.113.9 port 4 " +
			"[preauth]"},
		{"sshd-closed", iso + "Disconnected from invalid user  203.0.113.9 port 4 [preauth]"},
		{"sshd-closed", old + "error: maximum authentication attempts exceeded for root from " +
			"203.0.113.9 port 4 ssh2 [preauth]"},
		{"sshd-closed", old + "Timeout before authentication for 203.0.113.9 port 4"},
		{"sshd-closed", "2026-11-25T01:31:58+00:00 mail sshd[811]: Timeout before authentication " +
			"for connection from 203.0.113.9 to 198.51.100.1, pid = 4711"},
		{"sshd-probe", old + "Did not receive identification string from 203.0.113.9"},
		{"sshd-probe", old + "Did not receive identification string from 203.0.113.9 port 4"},
		{"sshd-probe", old + `Bad protocol version identification 'GET / HTTP/1.1' from 203.0.113.9 port 4`},
		{"sshd-probe", iso + "banner exchange: Connection from 203.0.113.9 port 4: invalid format"},
		{"sshd-probe", iso + "Unable to negotiate with 203.0.113.9 port 4: no matching key " +
			"exchange method found. Their offer: diffie-hellman-group1-sha1 [preauth]"},
		{"sshd-probe", iso + "ssh_dispatch_run_fatal: Connection from 203.0.113.9 port 4: bignum " +
			"is negative [preauth]"},
		{"sshd-probe", old + "error: kex_exchange_identification: banner line contains invalid " +
			"characters from 203.0.113.9"},
		{"dropbear-failed", "Nov 25 01:31:58 ap dropbear[811]: [811] Nov 25 01:31:58 Bad " +
			"password attempt for 'root' from 203.0.113.9:4711"},
		{"dropbear-closed", "Nov  5 01:31:58 ap dropbear[811]: [811] Nov  5 01:31:58 Exit " +
			"before auth from <203.0.113.9:4711>: Exited normally"},
		{"dropbear-failed", "Nov 25 01:31:58 ap dropbear[811]: Bad password attempt for 'root' " +
			"from 203.0.113.9:4711"},
		{"dropbear-failed", "Nov 25 01:31:58 ap dropbear[811]: Bad PAM password attempt for " +
			"'root' from 203.0.113.9:4711"},
		{"dropbear-failed", "Nov 25 01:31:58 ap dropbear[811]: Login attempt for nonexistent " +
			"user from 203.0.113.9:4711"},
		{"dropbear-failed", "Nov 25 01:31:58 ap dropbear[811]: Login attempt for nonexistent " +
			"user 'x' from 203.0.113.9:4711"},
		{"nginx-404", `203.0.113.9 - - [25/Nov/2026:01:31:58 +0000] "GET /wp-login.php HTTP/1.1" 404 153 ` +
			`"-" "Mozilla/5.0 (compatible; 198.51.100.1)"`},
		{"nginx-404", `2001:db8::9 - - [25/Nov/2026:01:31:58 +0000] "GET /.env HTTP/2.0" 404 0`},
		{"nginx-404", `203.0.113.9 - - [25/Nov/2026:01:31:58 +0000] "GET /\" 200 HTTP/1.1" 404 196 "-" "-"`},
		{"nginx-401", `203.0.113.9 - bob [25/Nov/2026:01:31:58 +0000] "GET /admin HTTP/1.1" 401 179 "-" "curl/8.5"`},
		{"nginx-4xx", `203.0.113.9 - - [25/Nov/2026:01:31:58 +0000] "\x16\x03\x01\x00\xEE" 400 157 "-" "-"`},
		{"nginx-auth", ng + `user "bob": password mismatch, client: 203.0.113.9, server: _, request: ` +
			`"GET /admin HTTP/1.1", host: "example.org"`},
		{"nginx-auth", ng + `user "bob" was not found in "/etc/nginx/htpasswd", client: 203.0.113.9, ` +
			`server: example.org, request: "GET / HTTP/1.1", host: "example.org"`},
		{"nginx-limit", ng + `limiting requests, excess: 20.345 by zone "one", client: 203.0.113.9, ` +
			`server: _, request: "GET / HTTP/1.1", host: "example.org"`},
		{"nginx-limit", ng + `limiting connections by zone "addr", client: 203.0.113.9, server: _, ` +
			`request: "GET / HTTP/1.1", host: "example.org"`},
		{"postfix-sasl", pf + "warning: unknown[203.0.113.9]: SASL LOGIN authentication " +
			"failed: UGFzc3dvcmQ6"},
		{"postfix-sasl", "2026-11-25T01:31:58.1+00:00 mail postfix/submission/smtpd[9]: warning: " +
			"host.example.net[203.0.113.9]: SASL PLAIN authentication failed: (reason " +
			"unavailable), sasl_username=info@example.org"},
		{"postfix-sasl", pf + "warning: unknown[203.0.113.9]: SASL CRAM-MD5 authentication failed"},
		{"postfix-sasl", pf + "warning: unknown[203.0.113.9]:4711: SASL LOGIN authentication " +
			"failed: x"},
		{"postfix-reject", pf + "NOQUEUE: reject: RCPT from unknown[203.0.113.9]: 554 5.7.1 " +
			"<a@example.com>: Relay access denied; from=<b@example.org> to=<a@example.com> " +
			"proto=ESMTP helo=<198.51.100.1>"},
		{"postfix-reject", ps + "NOQUEUE: reject: RCPT from [203.0.113.9]:4711: 550 5.7.1 " +
			"Service unavailable; client [203.0.113.9] blocked using zen.example; from=<a>, " +
			"to=<b>"},
		{"postfix-reject", pf + "NOQUEUE: reject: RCPT from unknown[203.0.113.9]:4711: 550 5.1.1 " +
			"<x>: Recipient address rejected: User unknown"},
		{"postfix-lost", pf + "lost connection after AUTH from unknown[203.0.113.9]"},
		{"postfix-lost", pf + "lost connection after AUTH from unknown[203.0.113.9]:4711"},
		{"postfix-lost", pf + "too many errors after RCPT from unknown[203.0.113.9]"},
		{"postfix-lost", pf + "improper command pipelining after EHLO from " +
			"unknown[203.0.113.9]: QUIT"},
		{"postfix-lost", ps + `PREGREET 11 after 0.15 from [203.0.113.9]:4711: EHLO ylmf-pc\r\n`},
		{"dovecot-auth", "Nov 25 01:31:58 mail dovecot: imap-login: Disconnected: Connection " +
			"closed (auth failed, 3 attempts in 14 secs): user=<a>, method=PLAIN, " +
			"rip=203.0.113.9, lip=198.51.100.1, TLS, session=<x>"},
		{"dovecot-auth", "Nov 25 01:31:58 mail dovecot: pop3-login: Disconnected (auth failed, 1 " +
			"attempts in 2 secs): user=<a>, method=PLAIN, rip=203.0.113.9, lip=198.51.100.1, " +
			"session=<x>"},
		// OpenSSH 10, Dovecot 2.4 and Postfix 3.10 as they write to syslog's socket
		{"sshd-failed", "<35>Nov 28 06:18:03 sshd-session[274]: error: PAM: Authentication " +
			"failure for bob from 203.0.113.9"},
		{"sshd-failed", old + "Failed keyboard-interactive for root from 203.0.113.9 port 4 ssh2"},
		{"sshd-failed", old + "[ID 800047 auth.info] Failed password for a from 203.0.113.9 port " +
			"4 ssh2"},
		{"sshd-failed", old + "Failed publickey for invalid user git from 203.0.113.9 port 4 " +
			"ssh2: ED25519 SHA256:x"},
		{"sshd-invalid", "Nov 5 01:31:58 mail sshd[811]: Invalid user a from 203.0.113.9 port 4"},
		{"sshd-invalid", "Nov 25 01:31:58 sshd[811]: ROOT LOGIN REFUSED FROM 203.0.113.9 port 4"},
		{"sshd-closed", old + "Disconnecting authenticating user root 203.0.113.9 port 4: Too " +
			"many authentication failures [preauth]"},
		{"sshd-closed", old + "fatal: Timeout before authentication for 203.0.113.9 port 4"},
		{"sshd-closed", old + "Received disconnect from 203.0.113.9 port 4:11: Bye Bye [preauth]"},
		{"sshd-closed", old + "error: Received disconnect from 203.0.113.9: 14: No supported " +
			"authentication methods available"},
		{"sshd-penalty", "<38>Nov 28 06:18:16 sshd[196]: drop connection #0 from [203.0.113.9]:4 " +
			"on [198.51.100.1]:22 penalty: failed authentication"},
		{"sshd-penalty", "<38>Nov 28 06:18:16 sshd[196]: drop connection #1 from [2001:db8::9]:4 " +
			"on [2001:db8::1]:22 penalty: exceeded LoginGraceTime"},
		{"sshd-probe", old + "Connection closed by 203.0.113.9 port 4"},
		{"sshd-probe", old + "Connection reset by 203.0.113.9 port 4 [preauth]"},
		{"dropbear-failed", "Nov 25 01:31:58 ap authpriv.warn dropbear[811]: Bad password " +
			"attempt for 'root' from 203.0.113.9:4711"}, // BusyBox
		{"dropbear-failed", "Fri Nov 25 01:31:58 2026 authpriv.warn dropbear[811]: Bad password " +
			"attempt for 'root' from 2001:db8::9:4711"}, // OpenWrt
		{"dropbear-closed", "Fri Nov 25 01:31:58 2026 authpriv.info dropbear[811]: Exit before " +
			"auth from <203.0.113.9:4711>: (user 'root', 10 fails): Max auth tries reached - " +
			"user 'root'"},
		{"pam-failed", "Nov 25 01:31:58 mail vsftpd: pam_unix(vsftpd:auth): authentication " +
			"failure; logname= uid=0 euid=0 tty=ftp ruser=bob rhost=203.0.113.9  user=bob"},
		{"nginx-404", `www.example.org:443 203.0.113.9 - - [25/Nov/2026:01:31:58 +0000] "GET /a ` +
			`HTTP/1.1" 404 1 "-" "-"`},
		{"nginx-auth", ng + `client login failed: "authentication failed" while in http auth state, ` +
			`client: 203.0.113.9, server: 0.0.0.0:143, login: "a"`},
		{"nginx-probe", ng + "SSL_do_handshake() failed (SSL: error:0A00010B:SSL routines::wrong " +
			"version number) while SSL handshaking, client: 203.0.113.9, server: 0.0.0.0:443"},
		{"nginx-probe", ng + `open() "/srv/a" failed (2: No such file or directory), client: ` +
			`203.0.113.9, server: _, request: "GET /a HTTP/1.1", host: "a"`},
		{"apache-auth", "[Wed Nov 25 01:31:58 2026] [error] [client 203.0.113.9] user bob not " +
			"found: /a"},
		{"apache-auth", "[Wed Nov 25 01:31:58.123456 2026] [auth_basic:error] [pid 17512:tid " +
			"1401] [client 203.0.113.9:51390] AH01617: user bob: authentication failure for " +
			"\"/a\": Password Mismatch"},
		{"apache-auth", "[Wed Nov 25 01:31:58.123456 2026] [auth_basic:error] [pid 17512] " +
			"[client 2001:db8::9:4711] AH01618: user bob not found: /a"},
		{"apache-auth", "Nov 25 01:31:58 srv apache2[9]: [authz_core:error] [pid 9] [client " +
			"203.0.113.9:4711] AH01630: client denied by server configuration: /srv/a"},
		{"apache-probe", "[Wed Nov 25 01:31:58.1 2026] [core:info] [pid 9:tid 1] [client " +
			"203.0.113.9:4711] AH00128: File does not exist: /srv/a"},
		{"lighttpd-auth", "2026-11-25 01:31:58: (mod_auth.c.791) digest: auth failed for  bob : " +
			"wrong password, IP: 203.0.113.9"},
		{"postfix-sasl", "Nov 25 01:31:58 mail postfix-in/submission/smtpd[9]: warning: " +
			"unknown[203.0.113.9]: SASL PLAIN authentication failed:"},
		{"postfix-reject", pf + "4DB1C3C0899: reject: RCPT from unknown[203.0.113.9]: 550 5.1.1 " +
			"<x>: Recipient address rejected: User unknown; from=<a> to=<x> proto=ESMTP helo=<b>"},
		{"postfix-reject", pf + "NOQUEUE: reject: RCPT from unknown[203.0.113.9]: 454 4.7.1 <x>: " +
			"Relay access denied; from=<a> to=<x> proto=ESMTP helo=<b>"},
		{"postfix-reject", pf + "NOQUEUE: reject: RCPT from unknown[203.0.113.9]: 450 4.7.1 " +
			"Client host rejected: cannot find your hostname, [203.0.113.9]; from=<a> to=<x> " +
			"proto=ESMTP helo=<b>"},
		{"postfix-lost", "<22>Nov 28 06:17:50 postfix/smtpd[263]: NOQUEUE: lost connection after " +
			"AUTH from unknown[203.0.113.9]"},
		{"postfix-lost", "<22>Nov 28 06:18:01 postfix/smtpd[263]: NOQUEUE: too many errors after " +
			"UNKNOWN from unknown[203.0.113.9]"},
		{"postfix-lost", pf + "disconnect from unknown[203.0.113.9] ehlo=1 auth=0/3 quit=1 " +
			"commands=2/5"},
		{"postfix-lost", "<20>Nov 28 06:18:01 postfix/smtpd[271]: warning: non-SMTP command from " +
			"unknown[203.0.113.9]: GET / HTTP/1.0"},
		{"postfix-probe", pf + "lost connection after CONNECT from unknown[203.0.113.9]"},
		{"dovecot-auth", "<22>Nov 28 06:17:08 dovecot: imap-login: Login aborted: Connection " +
			"closed (auth failed, 1 attempts in 7 secs) (auth_failed): user=<bob>, method=PLAIN, " +
			"rip=203.0.113.9, lip=198.51.100.1, session=<+OjqH1Bhj6LAAAIJ>"},
		{"dovecot-auth", "Nov 25 01:31:58 pop3-login: Info: Aborted login (auth failed, 1 " +
			"attempts in 2 secs): user=<a>, method=PLAIN, rip=203.0.113.9"},
		{"dovecot-auth", "2026-11-25 01:31:58 imap-login: Info: Disconnected (auth failed, 1 " +
			"attempts): user=<a>, method=PLAIN, rip=2001:db8::9, lip=::1"},
		{"dovecot-passdb", "Nov 25 01:31:58 mail dovecot: auth-worker(304): " +
			"pam(bob,203.0.113.9): pam_authenticate() failed: Authentication failure (password " +
			"mismatch?)"},
		{"dovecot-passdb", "Nov 25 01:31:58 auth: Info: sql(bob,203.0.113.9,<n4JLdHNVngZGpV2j>): " +
			"unknown user"},
		{"dovecot-passdb", "<22>Nov 28 06:17:24 dovecot: auth-worker(bob,203.0.113.9)<242>" +
			"<G+dZIFBhMYLAAAIJ>: request [3]: pam: pam_authenticate() failed: Authentication " +
			"failure (Password mismatch?)"},
		{"dovecot-probe", "<22>Nov 28 06:17:30 dovecot: imap-login: Login aborted: Connection " +
			"closed (no auth attempts in 0 secs) (no_auth_attempts): user=<>, rip=203.0.113.9, " +
			"lip=127.0.0.1"},
	} {
		a, r := find(t, c.format, c.line)
		if s := a.String(); r != Matched || s != "203.0.113.9" && s != "2001:db8::9" {
			t.Errorf("%s: %d %s of %q", c.format, r, a, c.line)
		}
	}
}

// TestNobodyShutsOutAnother has names and requests of attackers at 203.0.113.9 who want 192.0.2.1,
// or anybody else, to be shut out.
func TestNobodyShutsOutAnother(t *testing.T) {
	names := []string{
		"root from 192.0.2.1 port 22 ssh2",
		"root from 192.0.2.1 port 22 ssh2 from 192.0.2.1 port 22 ssh2",
		"x from 192.0.2.1",
		"192.0.2.1",
		"a 192.0.2.1 port 22 [preauth]",
		"a not allowed because 192.0.2.1",
		`a": password mismatch, client: 192.0.2.1, server: x`,
		`a" was not found in "b", client: 192.0.2.1, server: `,
		`", client: 192.0.2.1, server: _, request: "`,
		"x rhost=192.0.2.1",
		"x,192.0.2.1): unknown user",
		"x,192.0.2.1)<2>: request [3]: a: unknown user",
		"x 192.0.2.1 port 4: Too many authentication failures [preauth]",
		"a] [client 192.0.2.1:4] user b not found: /",
		"x : wrong password, IP: 192.0.2.1",
		`a' from 192.0.2.1:22`,
		`" 404 1 "192.0.2.1 - - [x y] "z" 404 1`,
		`unknown[192.0.2.1]: SASL LOGIN authentication failed: x`,
		`>, method=PLAIN, rip=192.0.2.1, lip=192.0.2.1`,
		`(auth failed, 1 attempts in 2 secs): user=<a>, rip=192.0.2.1, lip=`,
		strings.Repeat("::1 ", 40) + "from 192.0.2.1 port 1 ssh2",
		"a from [192.0.2.1]:1 192.0.2.1. 192.0.2.1:1",
		"Nov 25 01:31:58 h sshd[1]: Failed password for root from 192.0.2.1 port 22 ssh2",
		"sshd[1]: Failed password for a from 192.0.2.1 port 22 ssh2",
		"x from 192.0.2.1 port 1 ssh1: ruser y",
		"x 192.0.2.1 port 4: Change of username or service not allowed: y",
		"unauthenticated' host: '192.0.2.1' (a",
	}
	esc := strings.NewReplacer(`"`, `\x22`, `\`, `\x5C`)
	frames := []string{ // %[1]s is what the attacker wrote, %[2]s as web servers log it
		"Nov 25 01:31:58 h sshd[1]: Failed password for invalid user %[1]s from 203.0.113.9 " +
			"port 4 ssh2",
		"Nov 25 01:31:58 h sshd[1]: Invalid user %[1]s from 203.0.113.9 port 4",
		"Nov 25 01:31:58 h sshd[1]: Invalid user %[1]s from 203.0.113.9",
		"Nov 25 01:31:58 h sshd[1]: Connection closed by invalid user %[1]s 203.0.113.9 port 4 " +
			"[preauth]",
		"Nov 25 01:31:58 h sshd[1]: Bad protocol version identification '%[1]s' from " +
			"203.0.113.9 port 4",
		"Nov 25 01:31:58 h dropbear[1]: Bad password attempt for '%[1]s' from 203.0.113.9:4",
		`203.0.113.9 - %[2]s [25/Nov/2026:01:31:58 +0000] "GET / HTTP/1.1" 404 1 "-" "-"`,
		`203.0.113.9 - - [25/Nov/2026:01:31:58 +0000] "%[2]s" 404 1 "%[2]s" "%[2]s"`,
		`203.0.113.9 - - [25/Nov/2026:01:31:58 +0000] "%[2]s" 401 1 "%[2]s" "%[2]s"`,
		`2026/11/25 01:31:58 [error] 1#1: *3 user "%[1]s": password mismatch, client: 203.0.113.9, ` +
			`server: _, request: "GET /%[1]s HTTP/1.1", host: "%[1]s"`,
		`2026/11/25 01:31:58 [error] 1#1: *3 user "%[1]s" was not found in "/f", client: 203.0.113.9, ` +
			`server: _, request: "GET /%[1]s HTTP/1.1", host: "%[1]s"`,
		`2026/11/25 01:31:58 [error] 1#1: *3 limiting requests, excess: 1.0 by zone "z", client: ` +
			`203.0.113.9, server: _, request: "GET %[1]s HTTP/1.1", host: "%[1]s"`,
		"Nov 25 01:31:58 h postfix/smtpd[1]: warning: unknown[203.0.113.9]: SASL LOGIN " +
			"authentication failed: x, sasl_username=%[1]s",
		"Nov 25 01:31:58 h postfix/smtpd[1]: NOQUEUE: reject: RCPT from unknown[203.0.113.9]: " +
			"554 5.7.1 <%[1]s>: Relay access denied; from=<%[1]s> to=<x> proto=ESMTP helo=<%[1]s>",
		"Nov 25 01:31:58 h dovecot: imap-login: Disconnected (auth failed, 1 attempts in 2 " +
			"secs): user=<%[1]s>, method=PLAIN, rip=203.0.113.9, lip=198.51.100.1, session=<y>",
		"Nov 25 01:31:58 h sshd[1]: pam_sss(sshd:auth): authentication failure; logname= uid=0 " +
			"euid=0 tty=ssh ruser=%[1]s rhost=203.0.113.9 user=%[1]s",
		"Nov 25 01:31:58 h sshd[1]: error: PAM: Authentication failure for %[1]s from 203.0.113.9",
		"Nov 25 01:31:58 h sshd[1]: Disconnecting invalid user %[1]s 203.0.113.9 port 4: Change " +
			"of username or service not allowed: (%[1]s,ssh-connection) -> (a,ssh-connection) " +
			"[preauth]",
		"Nov 25 01:31:58 h sshd[1]: Received disconnect from 203.0.113.9 port 4:11: %[1]s " +
			"[preauth]",
		"Nov 25 01:31:58 h dovecot: auth: sql(%[1]s,203.0.113.9,<n4J>): unknown user",
		"Nov 25 01:31:58 h dovecot: auth-worker(%[1]s,203.0.113.9)<2><x>: request [3]: pam: " +
			"unknown user",
		"[Wed Nov 25 01:31:58.1 2026] [a:error] [pid 9] [client 203.0.113.9:4] AH01618: user " +
			"%[1]s not found: /%[1]s, referer: %[1]s",
		"2026-11-25 01:31:58: (mod_auth.c.791) digest: auth failed for  %[1]s : wrong password, " +
			"IP: 203.0.113.9",
		"Nov 25 01:31:58 h dropbear[1]: Exit before auth from <203.0.113.9:4>: (user '%[1]s', 10 " +
			"fails): Max auth tries reached - user '%[1]s'",
		"Nov 25 01:31:58 h sshd[1]: Disconnecting invalid user %[1]s 203.0.113.9 port 4: " +
			"Too many authentication failures [preauth]",
		"Nov 25 01:31:58 h sshd[1]: Disconnecting invalid user %[1]s 203.0.113.9 port 4: " +
			"%.100[3]s [preauth]",
		"Nov 25 01:31:58 h sshd[1]: Disconnecting invalid user %[1]s 203.0.113.9 port 4: " +
			"no authentication methods enabled [preauth]",
		"2026-11-25  1:31:58 339 [Warning] Aborted connection 339 to db: 'unconnected' user: " +
			"'%[1]s' host: '203.0.113.9' (Got an error reading communication packets)",
		"2026-11-25  1:31:58 339 [Warning] Aborted connection 339 to db: 'unconnected' user: " +
			"'%[1]s' host: 'host.example' (Got an error reading communication packets)",
	}
	with := func(frame, name string) string {
		// sshd logs the first 100 bytes of such a message.
		change := "Change of username or service not allowed: (" + name +
			",ssh-connection) -> (postmaster,ssh-connection)"
		return fmt.Sprintf(frame, name,
			esc.Replace(name), change)
	}
	// With these, two clients may have caused the same line: nobody is counted.
	either := []string{
		"xxxxx 192.0.2.1 port 1: Too many authentication failures", // ends at the 100th byte
		"x 192.0.2.1 port 4: Change of username or service not allowed: (y",
	}
	for _, name := range slices.Concat(names, either) {
		for _, frame := range frames {
			line := with(frame, name)
			for _, k := range Library() {
				a, r := find(t, k.Name, line)
				if r == Matched && a.String() != "203.0.113.9" {
					t.Errorf("%s: %s is shut out by %q", k.Name, a, line)
				}
			}
		}
	}
	// what an attacker can write must not hide him where only he could have written it
	for i, format := range []string{0: "sshd-failed", 1: "sshd-invalid", 3: "sshd-closed",
		7: "nginx-404", 12: "postfix-sasl", 13: "postfix-reject", 14: "dovecot-auth",
		24: "sshd-closed", 25: "sshd-closed", 26: "sshd-closed"} {
		if format == "" {
			continue
		}
		for _, name := range names {
			line := with(frames[i], name)
			if a, r := find(t, format, line); r != Matched || a.String() != "203.0.113.9" {
				t.Errorf("%s: %d %s of %q", format, r, a, line)
			}
		}
	}
}

// TestNobodyIsBlamedForWhatTheMachineLacks has lines of honest clients.
func TestNobodyIsBlamedForWhatTheMachineLacks(t *testing.T) {
	for _, line := range []string{
		"Nov 25 01:31:58 h postfix/smtpd[1]: warning: unknown[203.0.113.9]: SASL LOGIN " +
			"authentication failed: Connection lost to authentication server",
		"Nov 25 01:31:58 h postfix/smtpd[1]: NOQUEUE: reject: RCPT from unknown[203.0.113.9]: " +
			"450 4.2.0 <x>: Recipient address rejected: Greylisted; from=<a> to=<x> proto=ESMTP " +
			"helo=<b>",
		"Nov 25 01:31:58 h postfix/smtpd[1]: NOQUEUE: reject: RCPT from unknown[203.0.113.9]: " +
			"451 4.3.5 <x>: Recipient address rejected: Server configuration problem; from=<a> " +
			"to=<x>",
		"Nov 25 01:31:58 h dovecot: auth-worker(1): sql(bob,203.0.113.9): Password query failed: " +
			"timeout",
		"Nov 25 01:31:58 h dovecot: imap-login: Login: user=<bob>, method=PLAIN, " +
			"rip=203.0.113.9, lip=198.51.100.1, mpid=1, TLS, session=<x>",
		"Nov 25 01:31:58 h sshd[1]: Connection closed by " +
			"203.0.113.9", // the end of a session before 7.5
		"Nov 25 01:31:58 h sshd[1]: Received disconnect from 203.0.113.9 port 4:11: disconnected " +
			"by user",
		"Nov 25 01:31:58 h sshd[1]: Disconnected from user root 203.0.113.9 port 4",
		"Nov 25 01:31:58 h sshd[1]: Failed publickey for bob from 203.0.113.9 port 4 ssh2: RSA " +
			"SHA256:x",
		"Nov 25 01:31:58 h sshd[1]: Accepted publickey for bob from 203.0.113.9 port 4 ssh2: RSA " +
			"SHA256:x",
	} {
		for _, k := range Library() {
			if a, r := find(t, k.Name, line); r != Other {
				t.Errorf("%s: %d %s of %q", k.Name, r, a, line)
			}
		}
	}
}

func TestPatternsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "no <addr>",
		"Failed password":              "no <addr>",
		"from <addr> to <addr> x":      "twice",
		"a <adr> b":                    "no placeholder",
		"a <addr b":                    "no placeholder",
		"abc <text><addr>":             "directly before",
		"abc <text><|x><addr>":         "directly before",
		"abc <a|<text>><addr>":         "directly before",
		"abc <addr><text>":             "directly behind",
		"abc <addr><|,><text>":         "directly behind",
		"abc <addr>.5":                 "directly behind",
		"abc <x|<addr>>":               "stand in each line",
		"abc <x|y <number>":            "no placeholder",
		"abc <a|<b|<c|<d|e>>>> <addr>": "deep",
		"<word> <addr> <text>":         "no part of it",
		strings.Repeat("x", 1001):      "longer than",
		strings.Repeat("a<word> ", 41): "more than 40",
	} {
		if _, err := Compile(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	p, err := Compile("user=<<<text>>, rip=<addr>, lip=<word>")
	if err != nil {
		t.Fatal(err)
	}
	if a, r := p.Match([]byte("user=<a.b>, rip=::ffff:192.0.2.1, lip=x")); r != Matched ||
		a.String() != "192.0.2.1" {
		t.Errorf("%s %d", a, r)
	}
}

// TestWhatStandsBehindAnAddressSaysWhereItEnds: a colon may begin a port, or go on.
func TestWhatStandsBehindAnAddressSaysWhereItEnds(t *testing.T) {
	for _, c := range []struct{ pattern, line, want string }{
		{"client <addr>:<number>]", "client 2001:db8::1:443]", "2001:db8::1"},
		{"client <addr>:<number>]", "client 192.0.2.1:443]", "192.0.2.1"},
		{"client <addr>]", "client 2001:db8::1:443]", "2001:db8::1:443"},
		{"client <addr><|:<number>>]", "client 192.0.2.1:443]", "192.0.2.1"},
		{"client <addr><|:<number>>]", "client 192.0.2.1]", "192.0.2.1"},
		{"client <addr><|:<number>>]", "client 2001:db8::1:51390]", "2001:db8::1"},
		{"client <addr><|:<number>>]", "client 2001:db8::1:443]", "ambiguous"},
		{"client <addr4>]", "client 192.0.2.1]", "192.0.2.1"},
		{"client <addr>. <text>", "client 192.0.2.1. It", "192.0.2.1"},
		{"client <addr>. <text>", "client 2001:db8::1. It", "2001:db8::1"},
		{"client <addr4>]", "client 2001:db8::1]", "other"},
		{"<text> from <addr><|, <text>>", "a from 192.0.2.1, b from 192.0.2.2", "ambiguous"},
		{"<text> from <last-addr><|, <text>>", "a from 192.0.2.1, b from 192.0.2.2", "192.0.2.2"},
	} {
		p, err := Compile(c.pattern)
		if err != nil {
			t.Fatalf("%q: %v", c.pattern, err)
		}
		a, r := p.Match([]byte(c.line))
		is := map[Result]string{Other: "other", Ambiguous: "ambiguous", Matched: a.String()}
		if got := is[r]; got != c.want {
			t.Errorf("%q of %q: %s, want %s", c.pattern, c.line, got, c.want)
		}
	}
}

// TestRepeatedMessagesCountAsOften: rsyslog writes one line for several.
func TestRepeatedMessagesCountAsOften(t *testing.T) {
	for line, want := range map[string]string{
		"Nov 25 01:31:58 h sshd[1]: message repeated 3 times: [ Failed x]":    "3|Failed x",
		"Nov 25 01:31:58 h sshd[1]: message repeated 3 times: [ a [preauth]]": "3|a [preauth]",
		"Nov 25 01:31:58 h sshd[1]: message repeated 0 times: [ x]": "1|message " +
			"repeated 0 times: [ x]",
		"Nov 25 01:31:58 h sshd[1]: message repeated 99999999 times: [ x]": "1|message " +
			"repeated 99999999 times: [ x]",
		"Nov 25 01:31:58 h sshd[1]: message repeated 3 times: x": "1|message " +
			"repeated 3 times: x",
	} {
		h, m := Split([]byte(line), now)
		if got := fmt.Sprintf("%d|%s", h.Times, m); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	zone := time.FixedZone("", 3600)
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, zone)
	for line, want := range map[string]string{
		"Jan  1 23:59:59 h sshd[1]: m: " +
			"x": "sshd|2026-01-01T22:59:59Z|m: x",
		"Dec 31 23:59:59 h sshd: m":                                  "sshd|2025-12-31T22:59:59Z|m",
		"<34>Jan  1 10:00:00 h su: m":                                "su|2026-01-01T09:00:00Z|m",
		"2026-01-01T10:00:00.5+02:00 h a/b[7]: m":                    "a/b|2026-01-01T08:00:00Z|m",
		"<165>1 2026-01-01T10:00:00Z h app 7 ID47 [a b=\"]\\\"\"] m": "app|2026-01-01T10:00:00Z|m",
		"<165>1 2026-01-01T10:00:00Z h app - - - \xef\xbb\xbfm":      "app|2026-01-01T10:00:00Z|m",
		"<165>1 - - app - - -":                                       "app|-|",
		"<165>1 2026-01-01T10:00:00Z h app 7 ID [a": "|-|<165>1 " +
			"2026-01-01T10:00:00Z h app 7 ID [a",
		"plain text: x":                              "|-|plain text: x",
		"Jan 1 10:00:00 h sshd[1]: m":                "sshd|2026-01-01T09:00:00Z|m",
		"<38>Jan  1 10:00:00 sshd[1]: m":             "sshd|2026-01-01T09:00:00Z|m",
		"Jan  1 10:00:00 h auth.info sshd[1]: m":     "sshd|2026-01-01T09:00:00Z|m",
		"Thu Jan  1 10:00:00 2026 auth.info sshd: m": "sshd|2026-01-01T09:00:00Z|m",
		"Jan  1 10:00:00 [sshd] m":                   "sshd|2026-01-01T09:00:00Z|m",
		"Jan  1 2025 10:00:00 h sshd[1]: m":          "sshd|2025-01-01T09:00:00Z|m",
		"Jan  1 10:00:00.123456 h sshd[1]: m":        "sshd|2026-01-01T09:00:00Z|m",
		"2026-01-01T10:00:00+0200 h sshd[1]: m":      "sshd|2026-01-01T08:00:00Z|m",
		"2026-01-01T10:00:00 sshd[1]: m":             "sshd|2026-01-01T09:00:00Z|m",
		"2026-01-01 10:00:00,124 h proftpd[1] m":     "proftpd|2026-01-01T09:00:00Z|m",
		"Jan  1 10:00:00 sogod [1]: m":               "sogod|2026-01-01T09:00:00Z|m",
		"Jan  1 10:00:00 h sshd[1]: [ID 8 a.b] m":    "sshd|2026-01-01T09:00:00Z|m",
		"2026-01-01 10:00:00 auth: Info: m":          "dovecot|2026-01-01T09:00:00Z|auth: Info: m",
		"@400000006955ecd500000000 auth: Info: m":    "dovecot|2026-01-01T03:40:32Z|auth: Info: m",
		"[Thu Jan  1 10:00:00.5 2026] [error] m":     "|2026-01-01T09:00:00Z|[error] m",
		"2026-01-01 10:00:00: (mod_auth.c.5) m": "|2026-01-01T09:00:00Z|2026-01-01 " +
			"10:00:00: (mod_auth.c.5) m",
		"2026/01/01 10:00:00 [error] " +
			"x": "|2026-01-01T09:00:00Z|2026/01/01 10:00:00 [error] x",
		`1.2.3.4 - - [01/Jan/2026:10:00:00 +0100] "`: `|2026-01-01T09:00:00Z|1.2.3.4 - - [01/Jan/2026:10:00:00 +0100] "`,
		`1.2.3.4 - [01/Jan/2020:10:00:00 +0100] x [01/Jan/2026:10:00:00 +0100] "a" "`: `|2026-01-01T09:00:00Z|` +
			`1.2.3.4 - [01/Jan/2020:10:00:00 +0100] x [01/Jan/2026:10:00:00 +0100] "a" "`,
		"": "|-|",
	} {
		h, m := Split([]byte(line), at)
		when := "-"
		if !h.Time.IsZero() {
			when = h.Time.UTC().Format("2006-01-02T15:04:05Z")
		}
		if got := h.Program + "|" + when + "|" + string(m); got != want {
			t.Errorf("%q:\n got %q\nwant %q", line, got, want)
		}
	}
}

// TestLinesOfOwnFilesAreWhole: their time counts, and patterns are of the whole line.
func TestLinesOfOwnFilesAreWhole(t *testing.T) {
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, line := range []string{
		"2026-01-01  9:00:00 7 [Note] m",
		"2026-01-01 11:00:00.5 +02:00 [WRN] m",
		"2026-01-01 09:00:00 UTC [7] m",
		"2026-01-01 09:00:00 [7] H=(x:) [::1]: y",
		"2026-01-01 09:00:00: (mod_auth.c.5) m",
		"[2026-01-01 09:00:00] NOTICE[7] m: x",
		"[Jan  1 09:00:00] m: x",
		"[01-Jan-2026 09:00:00 +0000]: m",
		"01-Jan-2026 09:00:00.1 client m",
		"[20260101-09:00:00] [INFO ] m: x",
		"[2026-01-01 11:00:00.1 +02:00][a]",
		"Thu Jan  1 09:00:00 2026 [pid 7] [sshd] FAIL LOGIN: x",
		"Thu Jan  1 09:00:00 2026 [pid 7] [sshd: x] FAIL LOGIN: x",
		"Thu Jan  1 09:00:00 2026 [pid 7] [x [7]: y] FAIL LOGIN: x",
	} {
		h, message := Split([]byte(line+"\r"), at)
		if string(message) != line || h.Program != "" ||
			!h.Time.Truncate(time.Second).Equal(at.Add(-15*time.Hour)) {
			t.Errorf("%q: %+v of %q", line, h, message)
		}
	}
}

// TestLongHostileLinesAreBounded: a line of addresses takes a bounded time.
func TestLongHostileLinesAreBounded(t *testing.T) {
	p, err := Compile("client: <text>, from <addr>, to <text>, end")
	if err != nil {
		t.Fatal(err)
	}
	line := []byte("client: " + strings.Repeat(", from 192.0.2.1, to ", MaxMessage/22))
	begun := time.Now()
	if _, r := p.Match(line); r != Ambiguous {
		t.Errorf("%d", r)
	}
	t.Logf("%d bytes in %s", len(line), time.Since(begun))
	if _, r := p.Match(bytes.Repeat(line, 2)); r != Other {
		t.Error("a line without a bound is read")
	}
}

// FuzzMatch holds for any line: no panic; the address stands in the line.
func FuzzMatch(f *testing.F) {
	f.Add("Nov 25 01:31:58 h sshd[1]: Failed password for a from 192.0.2.1 port 22 ssh2")
	f.Add(`<165>1 2026-01-01T10:00:00Z h app 7 ID47 [a b="]\""] m`)
	f.Add(`203.0.113.9 - - [25/Nov/2026:01:31:58 +0000] "GET / HTTP/1.1" 404 153 "-" "x"`)
	var all []*Pattern
	for _, k := range Library() {
		for _, text := range k.Patterns {
			p, err := Compile(text)
			if err != nil {
				f.Fatal(k.Name, err)
			}
			all = append(all, p)
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		_, message := Split([]byte(line), now)
		if !strings.Contains(line, string(message)) {
			t.Fatalf("%q is no part of the line", message)
		}
		for _, p := range all {
			if a, r := p.Match(message); r == Matched && (!a.IsValid() || a.Zone() != "") {
				t.Fatalf("%s matches with %s", p.Text, a)
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	lines := [][]byte{
		[]byte("Nov 25 01:31:58 h sshd[1]: Failed password for invalid user admin from " +
			"192.0.2.1 port 22 ssh2"),
		[]byte("Nov 25 01:31:58 h sshd[1]: pam_unix(sshd:session): session opened for user " +
			"root by (uid=0)"),
	}
	p, err := Compile("Failed password for <text> from <addr> port <number> ssh2")
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		_, m := Split(lines[i&1], now)
		p.Match(m)
	}
}
