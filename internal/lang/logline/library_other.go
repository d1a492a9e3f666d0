package logline

// This file has the rows of programs that write to files of their own, and of further ones. They
// begin with what the program writes, so that no other program's line is one. Programs that believe
// a client's header about its address, without being told of a proxy, have no row: clients could
// name others. Nor have events of UDP, whose sources anybody forges, but for Asterisk's.

// Times at the beginning of a line.
const (
	day   = "<number>-<number>-<number>"
	clock = "<number>:<number>:<number><|<,|.><number>>"
)

// Of Exim: a client, the name in front that its address has, and the name that it has said.
const eximClient = "<|<word> ><|(<word>) >[<addr>]<|:<number>>"

var mailFormats = []Format{
	{Name: "exim-auth",
		What: "a password was wrong, or asked for where none is taken (Exim)",
		Patterns: []string{
			ofExim("<word> authenticator failed for " + eximClient + "<| <text>>: 535 Incorrect " +
				"authentication data<text>"),
			ofExim("SMTP protocol error in <quote><text><quote> H=" + eximClient + "<| " +
				"I=<word>><| Ci=<number>> <AUTH command used when not advertised|<word> " +
				"authentication mechanism not supported>"),
		}},
	{Name: "exim-reject",
		What: "a mail was refused: relaying, an unknown user, a blocklist (Exim)",
		Patterns: []string{
			// What is refused for a time only has a word before "rejected" that is no K=V.
			ofExim("<|F=<word> >H=" + eximClient + "<|<| <text>> <word>=<word>> rejected <text>"),
			ofExim("H=" + eximClient + "<| <text>> sender verify fail for <text>"),
		}},
	{Name: "exim-probe",
		What: "a client left before it had said what for, was sent away, or spoke no SMTP (Exim)",
		Patterns: []string{
			ofExim("no MAIL in SMTP connection from " + eximClient + "<| <text>> D=<word><| " +
				"<text>>"),
			ofExim("SMTP call from " + eximClient + "<| <text>> dropped: too many <text>"),
			ofExim("SMTP connection from " + eximClient + "<| <text>> closed by DROP in ACL"),
			ofExim("SMTP protocol synchronization error (<text>): rejected <connection " +
				"from|<quote><text><quote>> H=" + eximClient + "<| <text>> <|next >input=<text>"),
		}},
	{Name: "cyrus-auth", Programs: []string{"cyrus/", "imap", "imapd", "imaps", "pop3", "pop3d",
		"pop3s", "lmtp", "sieve", "httpd"},
		What: "a password was wrong (Cyrus IMAP)",
		Patterns: []string{
			// SASL(-1) tells that what knows the passwords does not answer.
			"badlogin: <|<word><| >>[<addr>] <text>SASL(-<13|20>): <text>",
			"badlogin: <|<word><| >>[<addr>] plaintext <text> invalid user",
		}},
	{Name: "courier-auth", Programs: []string{"imapd", "imapd-ssl", "pop3d", "pop3d-ssl",
		"imaplogin", "courierpop3login", "courieresmtpd"},
		What: "a password was wrong (Courier)",
		Patterns: []string{
			"LOGIN FAILED, <user|method>=<text>, ip=[<addr>]<|, port=[<number>]>",
			"error,relay=<addr>,<|port=<number>,>msg=<quote>535 Authentication " +
				"failed.<quote><text>",
		}},
	{Name: "courier-reject", Programs: []string{"courieresmtpd"},
		What: "a mail was refused: relaying, an unknown user, a blocklist (Courier)",
		Patterns: []string{
			"error,relay=<addr>,<text>: 5<number> <text>",
		}},
	{Name: "sendmail-auth", Programs: sendmail,
		What: "a password was wrong (Sendmail)",
		Patterns: []string{
			"<word>: AUTH failure (<word>): <authentication failure|user not found><text>, relay=" +
				sendmailClient,
			"<word>: " + sendmailClient + ": possible SMTP attack: command=AUTH, count=<number>",
		}},
	{Name: "sendmail-reject", Programs: sendmail,
		What: "a mail was refused: relaying, an unknown user, a blocklist (Sendmail)",
		Patterns: []string{
			"<word>: ruleset=check_<word>, arg1=<text>, relay=" + sendmailClient +
				", reject=5<text>",
		}},
	{Name: "sendmail-probe", Programs: sendmail,
		What: "a client left before it had said what for, spoke too early, or asked for users " +
			"(Sendmail)",
		Patterns: []string{
			"<word>: " + sendmailClient + " did not issue MAIL/EXPN/VRFY/ETRN during connection " +
				"to <text>",
			"<word>: rejecting commands from " + sendmailClient + " due to pre-greeting traffic " +
				"after <text>",
			"<word>: " + sendmailClient + ": <EXPN|VRFY|expn|vrfy> <text> [rejected]",
		}},
	{Name: "roundcube-auth",
		What: "a password was wrong (Roundcube)",
		Patterns: []string{
			ofRoundcube("<Failed|FAILED> login for <text> from <addr><|(X-<text>)><| in session " +
				"<word> (error: <0|4>)>"), // 0: refused, 4: too often
			ofRoundcube("IMAP Error: Login failed for <text> from <addr><|(X-<text>)>"),
			ofRoundcube(roundcubeIMAP + ": <text>"),
		},
		Except: []string{
			ofRoundcube(roundcubeIMAP + ": <word> NO [UNAVAILABLE] <text>"),
		}},
	{Name: "sogo-auth", Programs: []string{"sogod"},
		What: "a password was wrong (SOGo)",
		Patterns: []string{
			"<|<word> >SOGoRootPage Login from '<addr>' for user '<text>' might not have " +
				"worked<text>",
		}},
}

var sendmail = []string{"sendmail", "sm-mta", "sm-acceptingconnections", "sm-msp"}

const sendmailClient = "<|<|<word>> >[<|IPv6:><addr>]<| (may be forged)>"

// ofExim is a message of Exim, behind what its file or syslog have before it.
func ofExim(message string) string {
	return "<|" + day + " " + clock + " <|<+|-><number> >><|[<number>] ><|<word>-<word>-<word> >" +
		message
}

// roundcubeIMAP matches Roundcube's message about an IMAP server that has refused a password. Where
// it could not ask, something else stands behind the address.
const roundcubeIMAP = "IMAP Error: Login failed for <text> from <addr><|(X-<text>)>. " +
	"<AUTHENTICATE <word>|LOGIN>"

// ofRoundcube is a message of Roundcube, behind its time and session.
func ofRoundcube(message string) string {
	return "<|[<word> " + clock + "<| <word>>]: ><|<<<word> >" + message
}

var fileFormats = []Format{
	{Name: "proftpd-auth", Programs: []string{"proftpd"},
		What: "a password was wrong, a user unknown or refused (ProFTPD)",
		Patterns: []string{
			ofProFTPD("USER <text>: no such user found from <text>"),
			ofProFTPD("USER <text> (Login failed)<|: <text>>"),
			ofProFTPD("SECURITY VIOLATION: <R|r>oot login attempted<|.>"),
			ofProFTPD("Maximum login attempts (<number>) exceeded<text>"),
		}},
	{Name: "vsftpd-auth",
		What: "a password was wrong (vsftpd)",
		Patterns: []string{
			ofVsftpd("FAIL LOGIN: Client <quote><last-addr><quote><|, <quote><text><quote>>"),
			ofVsftpd("FTP response: Client <quote><last-addr><quote>, <quote>530 Permission " +
				"denied.<quote>"), // who has not logged in yet is told 530 too
		}},
	{Name: "pureftpd-auth", Programs: []string{"pure-ftpd"},
		What: "a password was wrong (Pure-FTPd)",
		Patterns: []string{
			"(<word>@<addr>) [WARNING] Authentication failed for user [<text>]",
		}},
	{Name: "rsync-auth",
		What: "a password was wrong, or a user may not (rsync's daemon)",
		Patterns: []string{
			ofRsync("auth failed on module <word> from <word> (<addr>)<| for <word>>: <password " +
				"mismatch|no matching rule|denied by rule|unauthorized user|invalid challenge " +
				"response>"),
		}},
	{Name: "rsync-probe",
		What: "a module that there is not, or that the client may not ask for (rsync's daemon)",
		Patterns: []string{
			ofRsync("unknown module '<text>' tried from <word> (<addr>)"),
			ofRsync("rsync denied on module <word> from <word> (<addr>)"),
		}},
	{Name: "mysql-auth",
		What: "a password was wrong (MySQL, MariaDB)",
		Patterns: []string{
			ofMySQL("Access denied for user '<text>'@'<addr>'<| (using password: <YES|NO>)>"),
		}},
	{Name: "mysql-probe",
		What: "a client left before it had logged in, as those do that watch a server (MySQL, " +
			"MariaDB)",
		Patterns: []string{
			ofMySQL("Aborted connection <number> to db: 'unconnected' user: 'unauthenticated' " +
				"host: '<addr>' (<This connection closed normally without authentication|Got <an " +
				"error|timeout> reading communication packets>)<|.>"),
		}},
	{Name: "mongodb-auth",
		What: "a password was wrong, or a user unknown (MongoDB 4.4 and newer)",
		Patterns: []string{
			ofMongoDB("Authentication failed", jsonText("mechanism", "<quoted>")+
				",<|<quote>speculative<quote>:<word>,>"+jsonText("principalName", "<quoted>")+","+
				jsonText("authenticationDatabase", "<quoted>")+",<quote><remote|client><quote>:"+
				"<quote><|[><addr><|]>:<number><quote>,<text>"),
			// since 6.0; of what else fails, a client that went away is none
			ofMongoDB("Failed to authenticate", jsonText("client", "<|[><addr><|]>:<number>")+
				",<quote>isSpeculative<quote>:<word>,<quote>isClusterMember<quote>:<word>,"+
				jsonText("mechanism", "<quoted>")+","+jsonText("user", "<quoted>")+","+
				jsonText("db", "<quoted>")+",<quote>error<quote>:<quote><UserNotFound|"+
				"AuthenticationFailed>: <text>"),
		}},
	{Name: "freeswitch-auth",
		What: "an answer to a challenge was wrong (FreeSWITCH, with log-auth-failures)",
		Patterns: []string{
			"<|<|<word> >" + day + " " + clock + " ><|<word>% >[WARNING] sofia_reg.c:<number> " +
				"SIP auth failure (<REGISTER|INVITE>) on sofia profile '<word>' for [<text>] " +
				"from ip <addr>",
		}},
	{Name: "asterisk-auth",
		What: "an answer to a challenge was wrong (Asterisk)",
		Patterns: []string{
			ofAsterisk("Registration from '<text>' failed for '<addr><|:<number>>' - Wrong " +
				"password"),
			ofPJSIP("Failed to authenticate"),
			ofAsterisk("Host <addr> failed <MD5|RSA> authentication for '<text>'<text>"),
			ofAsterisk("<addr> failed to authenticate as '<text>'"), // by TCP
			ofAsterisk("<addr> tried to authenticate with nonexistent user '<text>'"),
			asteriskEvent("ChallengeResponseFailed|InvalidPassword"),
		}},
	{Name: "asterisk-probe",
		What: "an account, an extension or a domain that there is not (Asterisk); of UDP, where " +
			"anybody forges the address",
		Patterns: []string{
			ofAsterisk("Registration from '<text>' failed for '<addr><|:<number>>' - <No " +
				"matching peer found|Username/auth name mismatch|Device does not match ACL|Peer " +
				"is not supposed to register|ACL error (permit/deny)|Not a local domain>"),
			ofPJSIP("<No matching endpoint found|Not match Endpoint <|Contact >ACL>"),
			ofAsterisk("Call from '<text>' (<|<UDP|TCP|TLS|WS|WSS>:><|[><addr><|]>:<number>) to " +
				"extension '<text>' rejected because extension not found in context '<text>'."),
			ofAsterisk("Host <addr> failed to authenticate as '<text>'"),
			ofAsterisk("No registration for peer '<text>' (from <addr>)"),
			ofAsterisk("hacking attempt detected '<addr>'"),
			"<|[<word> <|< |><number> ><word>] >WARNING[<number>]<|[<word>]><|:> Ext. <text>: " +
				"<quote>Rejecting unknown SIP connection from <|[><addr><|]><|:<number>><quote>",
			asteriskEvent("FailedACL|InvalidAccountID"),
		}},
	{Name: "proxmox-auth", Programs: []string{"pvedaemon", "pveproxy", "pmgdaemon",
		"proxmox-backup-proxy", "proxmox-backup-api"},
		What: "a password was wrong (Proxmox VE, Mail Gateway, Backup Server)",
		Patterns: []string{
			"authentication failure; rhost=<|[><addr><|]><|:<number>> user=<text>",
		}},
	{Name: "webmin-auth", Programs: []string{"webmin"},
		What: "a password was wrong, or a user unknown (Webmin)",
		Patterns: []string{
			"<Invalid|Non-existent> login as <text> from <addr>< |>",
		}},
	{Name: "xrdp-auth",
		What: "a password was wrong (xrdp)",
		Patterns: []string{
			"<|[<word>] [<word><| >] >AUTHFAIL: user=<text> ip=<addr> time=<number>",
		}},
	{Name: "znc-auth",
		What: "a password was wrong (ZNC, with adminlog)",
		Patterns: []string{
			"[" + day + " " + clock + "] [<text>] failed to login from <addr><|:<number>>",
			"[<word>] failed to login from <addr><|:<number>>", // by syslog
		}},
	{Name: "ejabberd-auth",
		What: "a password was wrong (ejabberd)",
		Patterns: []string{
			day + " " + clock + "<|<+|-><word>> [<word>] <|<word> >(<text>) Failed <|c2s <word> >" +
				"authentication for <text> from <|IP ><addr><|: <text>>",
		}},
}

// ofVsftpd is a message of vsftpd's file about a client, who has said the name in brackets.
func ofVsftpd(message string) string {
	return "<word> <word> < |><number> " + clock + " <number> [pid <number>] [<text>] " + message
}

// ofRsync is a message of rsync's daemon, behind the time and the number in its own file.
func ofRsync(message string) string {
	return "<|<number>/<number>/<number> " + clock + " [<number>] >" + message
}

// ofMySQL is a message of MySQL or MariaDB, behind its time, its thread and how grave it is.
func ofMySQL(message string) string {
	return "<|<word> <|< |><word> ><|<number> >[<Warning|Note>] <|[<word>] [<word>] >>" + message
}

// ofProFTPD is a message of ProFTPD about a client.
func ofProFTPD(message string) string { return "<word> (<word>[<addr>])<:| -> " + message }

// ofAsterisk is a message of Asterisk, behind its time, its level and where in its source it is.
func ofAsterisk(message string) string {
	return "<|[<word> <|< |><number> ><word>] ><NOTICE|WARNING|SECURITY><| >[<number>]<|[<word>]>" +
		"<|:> <word>:<|<number> <|in ><word>:> " + message
}

// ofPJSIP lists the reasons for which a request of SIP failed. Once there were several, their
// number stands behind it.
func ofPJSIP(why string) string {
	return ofAsterisk("Request <|'<word>' >from '<text>' failed for '<|[><addr><|]>:<number>' " +
		"(callid: <text>) - " + why + "<| after <number> tries in <word> ms>")
}

// asteriskEvent are events of Asterisk's file security.
func asteriskEvent(events string) string {
	return ofAsterisk("SecurityEvent=<quote><" + events + "><quote>,<text>,RemoteAddress=<quote>" +
		"IPV<4|6>/<UDP|TCP|TLS|WS|WSS>/<addr>/<number><quote><|,<text>>")
}

var webFormats = []Format{
	{Name: "haproxy-401",
		What:     "a password was missing or wrong, in the log of requests (HAProxy)",
		Patterns: []string{ofHAProxy("401 ")}},
	{Name: "haproxy-4xx",
		What:     "any error of a client, in the log of requests (HAProxy)",
		Patterns: []string{ofHAProxy("<4xx> ")}},
	{Name: "haproxy-probe",
		What: "what is no client of TLS or HTTP (HAProxy)",
		Patterns: []string{
			"<addr>:<number> [<word>] <word>: SSL handshake failure<text>",
			"<addr>:<number> [<word>] <word>: Connection closed during SSL handshake",
			"<addr>:<number> [<word>] <word> <word>/<<NOSRV> <word> 400 <text> <quote><<BADREQ>" +
				"<quote>",
		}},
	{Name: "caddy-401",
		What:     "a password was missing or wrong, in the access log (Caddy)",
		Patterns: []string{ofCaddy("401")}},
	{Name: "caddy-4xx",
		What:     "any error of a client, in the access log (Caddy)",
		Patterns: []string{ofCaddy("<4xx>")}},
	{Name: "traefik-401",
		What: "a password was missing or wrong, in the access log as JSON (Traefik); " +
			"nginx-401 reads its other form",
		Patterns: []string{ofTraefik("401")}},
	{Name: "traefik-4xx",
		What:     "any error of a client, in the access log as JSON (Traefik)",
		Patterns: []string{ofTraefik("<4xx>")}},
	{Name: "squid-auth",
		What: "a password was missing or wrong, in the access log (Squid); each client asks once " +
			"without",
		Patterns: []string{ofSquid("407")}},
	{Name: "squid-denied",
		What:     "the rules forbid it, in the access log (Squid)",
		Patterns: []string{ofSquid("403")}},
	{Name: "tinyproxy-denied",
		What: "a client that may not use it (Tinyproxy)",
		Patterns: []string{
			ofTinyproxy("Unauthorized connection from <quote><addr><quote>."),
			ofTinyproxy("Unauthorized connection from <quote><word><quote> [<addr>]."),
		}},
	{Name: "nrpe-denied", Programs: []string{"nrpe"},
		What: "a client that may not ask (NRPE)",
		Patterns: []string{
			"Host <addr> is not allowed to talk to us!",
		}},
	{Name: "wordpress-auth", Programs: []string{"wordpress"},
		What: "a password was wrong, or users were listed (WordPress with WP fail2ban)",
		Patterns: []string{
			"<A|XML-RPC a>uthentication <failure for|attempt for unknown user> <text> from <addr>",
			"XML-RPC multicall authentication failure for <text> from <addr>",
			"Blocked <user enumeration attempt|username authentication attempt for <text>> from " +
				"<addr>",
		}},
	{Name: "drupal-auth",
		What: "a password was wrong (Drupal with its module Syslog)",
		Patterns: []string{
			"<word>|<number>|user|<addr>|<text>|Login attempt failed <for|from> <text>.",
		}},
	{Name: "phpmyadmin-auth", Programs: []string{"phpMyAdmin"},
		What: "a password was wrong (phpMyAdmin)",
		Patterns: []string{
			"user denied: <text> (<word>) from <addr>",
		}},
	{Name: "nextcloud-auth",
		What: "a password was wrong (Nextcloud)",
		Patterns: []string{
			"{" + jsonText("reqId", "<word>") + `,<quote>level<quote>:2,` +
				jsonText("time", "<quoted>") + "," + jsonText("remoteAddr", "<addr>") + "," +
				jsonText("user", "<quoted>") + "," +
				jsonText("app", "<core|no app in context>") + "," +
				jsonText("method", "<quoted>") + "," + jsonText("url", "<quoted>") + ",<|" +
				jsonText("scriptName", "<quoted>") + ",><quote>message<quote>:<quote>Login " +
				"failed: <text>",
		}},
	{Name: "gitea-auth",
		What: "a password was wrong, or a user unknown (Gitea, Forgejo)",
		Patterns: []string{
			"<number>/<number>/<number> " + clock + " <word> [<word>] <|[<word>] >Failed " +
				"authentication attempt for <text> from <|[><addr><|]>:<number><|: <text>>",
		},
		// Where what stands for the address has no port, as @ for a client by a Unix socket, an
		// address with one in front of it is in the user name.
		Except: []string{
			"<number>/<number>/<number> " + clock + " <word> [<word>] <|[<word>] >Failed " +
				"authentication attempt for <text> from <|[><addr><|]>:<number>: <text> from " +
				"<|<word>><|: <text>>",
		}},
	{Name: "gitlab-auth",
		What: "a password was wrong, in application.log and application_json.log (GitLab)",
		Patterns: []string{
			"<word>: Failed Login: username=<text> ip=<addr>",
			"{<quote>severity<quote>:<text>,<quote>message<quote>:<quote>Failed Login: " +
				"username=<text> ip=<addr><quote><text>}",
		}},
	{Name: "homeassistant-auth",
		What: "a password or a token was wrong (Home Assistant)",
		Patterns: []string{
			day + " " + clock + " WARNING (<word>) [homeassistant.components.http.ban] Login " +
				"attempt or request with invalid authentication from <word> (<addr>). <text>",
		}},
	{Name: "jellyfin-auth",
		What: "a password was wrong (Jellyfin)",
		Patterns: []string{
			"[" + day + " " + clock + "<| <word>>] [<word>] [<word>] Jellyfin.Server." +
				"Implementations.Users.UserManager: Authentication request for <|<quote>><text>" +
				"<|<quote>> has been denied (IP: <|<quote>><addr><|<quote>>).",
		}},
	{Name: "bitwarden-auth",
		What: "a password was wrong (Bitwarden)",
		Patterns: []string{
			"<|" + day + " " + clock + " <word> ><|[<word>] >Failed login attempt<|, 2FA " +
				"invalid>. <addr>",
		}},
	{Name: "guacamole-auth",
		What: "a password was wrong (Guacamole)",
		Patterns: []string{
			"<word> [<word>] WARN < |><word> - Authentication attempt from <addr> for user " +
				"<quote><text><quote> failed.",
			"WARNING: Authentication attempt from <addr> for user <quote><text><quote> failed.",
		}},
	{Name: "monit-auth",
		What: "a password was wrong, or a user unknown (Monit)",
		Patterns: []string{
			"<|[<word>] error    : >HttpRequest: access denied -- " +
				"client <|[><addr><|]>: <empty password|unknown user '<text>'|wrong password for " +
				"user '<text>'>",
		}},
	{Name: "murmur-auth",
		What: "a password was wrong (Mumble's server)",
		Patterns: []string{
			"<<W>" + day + " " + clock + " <number> => <<<number>:<text>(<|-><number>)> Rejected " +
				"connection from <|[><addr><|]>:<number>: <Invalid server password|Wrong " +
				"certificate or password for existing user>",
		}},
	{Name: "uptimekuma-auth",
		What: "a password or a token was wrong (Uptime Kuma)",
		Patterns: []string{
			"<|<word> [AUTH] WARN: ><Incorrect username or password|Invalid token provided> for " +
				"user <text>. IP=<addr>",
		}},
	{Name: "keycloak-auth",
		What: "a password was wrong, or a user unknown (Keycloak)",
		Patterns: []string{
			ofKeycloak(""), ofKeycloak("<quote>"), // the latter since 22
		}},
	{Name: "immich-auth",
		What: "a password was wrong (Immich)",
		Patterns: []string{
			"<|\x1b[33m>[Nest] <text>Failed login attempt for user <text> from ip address <addr>" +
				"<|\x1b[39m>",
		}},
}

// jsonText is a member of an object of JSON whose value is a text.
func jsonText(name, value string) string {
	return "<quote>" + name + "<quote>:<quote>" + value + "<quote>"
}

// ofMongoDB is a message of MongoDB about who logs in, with its attributes. Their names are padded.
func ofMongoDB(message, attributes string) string {
	return "{<quote>t<quote>:{" + jsonText("$date", "<word>") + "}," + jsonText("s", "I") +
		",<|  >" + jsonText("c", "ACCESS") + ",<|   ><quote>id<quote>:<number>,<| |   ><|" +
		jsonText("svc", "<word>") + ", >" + jsonText("ctx", "<word>") + "," +
		jsonText("msg", message) + ",<quote>attr<quote>:{" + attributes
}

// ofCaddy is a line of Caddy's access log, of who has connected: a client that a proxy names stands
// elsewhere.
func ofCaddy(status string) string {
	return "{" + jsonText("level", "<word>") + ",<quote>ts<quote>:<word>," +
		jsonText("logger", "http.log.access<|.<word>>") + "," + jsonText("msg", "handled request") +
		",<quote>request<quote>:{" + jsonText("remote_ip", "<addr>") +
		",<text><quote>status<quote>:" + status + ",<text>"
}

// ofTraefik is a line of Traefik's access log as JSON, of who has connected.
func ofTraefik(status string) string {
	return "{" + jsonText("ClientAddr", "<|[><addr><|]>:<number>") + ",<text>" +
		"<quote>DownstreamStatus<quote>:" + status + ",<text>"
}

// ofKeycloak is an event of Keycloak, whose values stand in quotes or not.
func ofKeycloak(q string) string {
	v := func(name, value string) string { return name + "=" + q + value + q + ", " }
	return "<|" + day + " " + clock + " >WARN< |  >[<word>] (<word>) " + v("type", "LOGIN_ERROR") +
		v("realmId", "<text>") + "<|" + v("realmName", "<text>") + ">" + v("clientId", "<text>") +
		v("userId", "<word>") + "<|" + v("sessionId", "<word>") + ">" + v("ipAddress", "<addr>") +
		v("error", "<user_not_found|user_disabled|user_temporarily_disabled|"+
			"invalid_user_credentials>") + "<text>"
}

// ofSquid is a line of Squid's access log in its own format. What it took is padded to six places.
func ofSquid(status string) string {
	return "<number>.<number> <     |    |   |  | |><number> <addr> TCP_DENIED/" + status +
		" <text>"
}

// ofTinyproxy is a message of Tinyproxy, behind how grave it is, its time and its number in its own
// file.
func ofTinyproxy(message string) string {
	return "<|NOTICE    <word> <number> " + clock + " [<number>]: >" + message
}

// ofHAProxy is a line of HAProxy's httplog without captured cookies, behind syslog's header.
func ofHAProxy(status string) string {
	return "<addr>:<number> [<word>] <word> <word>/<word> <word> " + status + "<number> - - <text>"
}
