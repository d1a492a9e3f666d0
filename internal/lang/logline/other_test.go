package logline

import (
	"strings"
	"testing"
	"time"
)

// TestTheOtherRowsReadLines has lines of each further row, as versions of the programs write them
// to their files, to syslog daemons and to the journal. Each is of 203.0.113.9 or 2001:db8::9.
func TestTheOtherRowsReadLines(t *testing.T) {
	const (
		day = "2026-11-25 01:31:58 "
		log = "Nov 25 01:31:58 mail "
		ast = "[2026-11-25 01:31:58] "
	)
	for format, lines := range map[string][]string{
		"caddy-401": {
			`{"level":"error","ts":1796072365.3798468,"logger":"http.log.access.log0",` +
				`"msg":"handled request","request":{"remote_ip":"203.0.113.9","remote_port":` +
				`"38264","proto":"HTTP/1.1","method":"GET","host":"a.example","uri":"/a/q?x=%22,` +
				`\"","headers":{"User-Agent":["q\",\"status\":200,"],"Accept":["*/*"],` +
				`"Authorization":[]}},"user_id":"","duration":11.155862527,"size":0,"status":401,` +
				`"resp_headers":{"Server":["Caddy"],"Www-Authenticate":["Basic realm=\"x\""]}}`,
			log + `caddy[7]: {"level":"info","ts":"2026-11-25T01:31:58Z","logger":"http.log.` +
				`access","msg":"handled request","request":{"remote_ip":"2001:db8::9","client_ip":` +
				`"192.0.2.1"},"bytes_read":0,"status":401,"resp_headers":{}}`,
		},
		"caddy-4xx": {
			`{"level":"error","ts":1796072365.523548,"logger":"http.log.access.log0","msg":` +
				`"handled request","request":{"remote_ip":"203.0.113.9","remote_port":"53674",` +
				`"proto":"HTTP/1.1","method":"GET","host":"127.0.0.1:18080","uri":"/none",` +
				`"headers":{"User-Agent":["curl/7.88.1"],"Accept":["*/*"]}},"user_id":"",` +
				`"duration":0.00001289,"size":0,"status":404,"resp_headers":{"Server":["Caddy"]}}`,
		},
		"traefik-401": {
			`{"ClientAddr":"203.0.113.9:62090","ClientHost":"192.0.2.1","ClientPort":"62090",` +
				`"ClientUsername":"-","DownstreamContentSize":17,"DownstreamStatus":401,` +
				`"Duration":21960,"RequestPath":"/a,\"DownstreamStatus\":200,","StartUTC":` +
				`"2026-11-25T01:31:58.825857408Z","level":"info"}`,
		},
		"traefik-4xx": {
			`{"ClientAddr":"[2001:db8::9]:62090","ClientHost":"2001:db8::9","ClientUsername":` +
				`"x\"","DownstreamContentSize":17,"DownstreamStatus":404,"Duration":21960,` +
				`"time":"2026-11-25T01:31:58+01:00"}`,
		},
		"nextcloud-auth": {
			`{"reqId":"XaQ6ehNN-waxXQIsoJHOSgAAAAE","level":2,"time":"October 14, 2019 09:06:02",` +
				`"remoteAddr":"203.0.113.9","user":"--","app":"core","method":"POST","url":` +
				`"\/index.php\/login","message":"Login failed: 'admin' (Remote IP: '203.0.113.9')",` +
				`"userAgent":"x","version":"16.0.5.1"}`,
			`{"reqId":"a","level":2,"time":"2026-11-25T01:31:58+00:00","remoteAddr":"2001:db8::9",` +
				`"user":"--","app":"no app in context","method":"POST","url":"\/login",` +
				`"scriptName":"\/index.php","message":"Login failed: x (Remote IP: 198.51.100.7)",` +
				`"userAgent":"x\",\"remoteAddr\":\"198.51.100.7","version":"33.0.9.1"}`,
		},
		"mongodb-auth": {
			`{"t":{"$date":"2023-03-11T19:34:47.264+08:00"},"s":"I",  "c":"ACCESS",   "id":20249,` +
				`   "ctx":"conn2","msg":"Authentication failed","attr":{"mechanism":"SCRAM-SHA-1",` +
				`"speculative":false,"principalName":"x\",\"remote\":\"198.51.100.7:1",` +
				`"authenticationDatabase":"admin","remote":"203.0.113.9:19368","extraInfo":{},` +
				`"error":"AuthenticationFailed: SCRAM authentication failed, storedKey mismatch"}}`,
			`{"t":{"$date":"2025-12-29T14:29:11.585+00:00"},"s":"I",  "c":"ACCESS",   ` +
				`"id":5286307, "svc":"R", "ctx":"conn14","msg":"Failed to authenticate","attr":` +
				`{"client":"[2001:db8::9]:55532","isSpeculative":false,"isClusterMember":false,` +
				`"mechanism":"SCRAM-SHA-256","user":"bob","db":"admin","error":"UserNotFound: ` +
				`Could not find user \"bob\" for db \"admin\"","result":11,"extraInfo":{}}}`,
		},
		"freeswitch-auth": {
			day + "[WARNING] sofia_reg.c:1792 SIP auth failure (REGISTER) on sofia profile " +
				"'internal' for [1000@a.example] from ip 203.0.113.9",
			"2026-11-25 01:31:58.123456 98.53% [WARNING] sofia_reg.c:1842 SIP auth failure " +
				"(INVITE) on sofia profile 'external' for [x] from ip 198.51.100.7] from ip " +
				"2001:db8::9",
		},
		"exim-auth": {
			day + "login authenticator failed for (ylmf-pc) [203.0.113.9]: 535 Incorrect " +
				"authentication data (set_id=bob)",
			day + "[4711] plain authenticator failed for a.example ([198.51.100.7]) " +
				"[203.0.113.9]:41556 I=[192.0.2.25]:25 Ci=7: 535 Incorrect authentication data",
			"2026-11-25T01:31:58.1+01:00 mx exim[4711]: dovecot_login authenticator failed for " +
				"[2001:db8::9]:4711: 535 Incorrect authentication data (set_id=a@b.example)",
			day + `SMTP protocol error in "AUTH LOGIN" H=(x) [203.0.113.9]:5 I=[192.0.2.25]:587 ` +
				`AUTH command used when not advertised`,
			day + `SMTP protocol error in "AUTH LOGIN" H=(x) [203.0.113.9] LOGIN authentication ` +
				`mechanism not supported`,
		},
		"exim-reject": {
			day + "H=a.example (b) [203.0.113.9] F=<x@a.example> rejected RCPT <y@b.example>: " +
				"relay not permitted",
			day + "H=(b) [203.0.113.9]:5 I=[192.0.2.25]:25 X=TLS1.3:TLS_AES_256_GCM_SHA384:256 " +
				"CV=no SNI=mx.example F=<x@a.example> rejected RCPT <y@b.example>: Unrouteable " +
				"address",
			day + "[7] 1UlasQ-0003fr-45 F=x@a.example H=(m) [203.0.113.9]:4 I=[192.0.2.25]:25 " +
				"P=esmtp rejected by local_scan(): Rejected",
			day + "1Unmew-0000ea-SE H=a.example [203.0.113.9]:3 F=<> rejected after DATA: virus",
			day + "H=a.example [203.0.113.9] sender verify fail for <x@a.example>: Unknown user",
		},
		"exim-probe": {
			day + "no MAIL in SMTP connection from a.example (b) [203.0.113.9]:3 " +
				"I=[192.0.2.25]:25 D=21s C=EHLO,STARTTLS",
			day + `SMTP call from [203.0.113.9] dropped: too many syntax or protocol errors ` +
				`(last command was "x",  C=EHLO)`,
			day + `[7] SMTP protocol synchronization error (input sent without waiting for ` +
				`greeting): rejected connection from H=[203.0.113.9]:3 I=[192.0.2.25]:25 ` +
				`input="GET / HTTP/1.1"`,
			day + "[7] 1ahr79-0006jK-G9 SMTP connection from (a) [203.0.113.9]:3 " +
				"I=[192.0.2.25]:25 closed by DROP in ACL",
		},
		"cyrus-auth": {
			log + "cyrus/imaps[7]: badlogin: a.example [203.0.113.9] plaintext bob SASL(-13): " +
				"authentication failure: checkpass failed",
			log + "imap[7]: badlogin: [203.0.113.9] plain [SASL(-13): user not found: x]",
			log + "imap[7]: badlogin: a.example [203.0.113.9] plaintext a b invalid user",
		},
		"courier-auth": {
			log + "imapd-ssl: LOGIN FAILED, user=bob, ip=[::ffff:203.0.113.9], port=[255]",
			log + "pop3d: LOGIN FAILED, method=PLAIN, ip=[2001:db8::9]",
			log + `courieresmtpd: error,relay=::ffff:203.0.113.9,port=4,msg="535 Authentication ` +
				`failed.",cmd: AUTH LOGIN x`,
		},
		"sendmail-auth": {
			log + "sm-mta[7]: s1GNX: a.example [203.0.113.9] (may be forged): possible SMTP " +
				"attack: command=AUTH, count=5",
			log + "sendmail[7]: 06I02: AUTH failure (LOGIN): authentication failure (-13) " +
				"SASL(-13): x: checkpass failed, user=bob, relay=a.example [203.0.113.9]",
		},
		"sendmail-reject": {
			log + "sm-mta[7]: s1P81: ruleset=check_rcpt, arg1=<a@b.example>, " +
				"relay=[203.0.113.9], reject=550 5.7.1 <a@b.example>... Relaying denied",
		},
		"sendmail-probe": {
			log + "sm-mta[7]: v26Lt: a.example [203.0.113.9] (may be forged) did not issue " +
				"MAIL/EXPN/VRFY/ETRN during connection to MTA",
			log + "sm-mta[7]: s1R9r: rejecting commands from  [IPv6:2001:DB8::9] due to " +
				"pre-greeting traffic after 0 seconds",
			log + "sm-mta[7]: s1NKI: [203.0.113.9]: VRFY root [rejected]",
		},
		"courier-reject": {
			log + "courieresmtpd: " +
				"error,relay=::ffff:203.0.113.9,from=<a@b.example>,to=<x@y.example>: " +
				"550 User unknown.",
		},
		"roundcube-auth": {
			"[25-Nov-2026 01:31:58 +0100]: <5t3h7> Failed login for bob from 203.0.113.9 in " +
				"session 5t3h7 (error: 0)",
			"[25-Nov-2026 01:31:58.123456 +0100]: <5t3h7> IMAP Error: Login failed for bob " +
				"against localhost from 203.0.113.9(X-Forwarded-For: 198.51.100.7). AUTHENTICATE " +
				"PLAIN: x",
			log + "roundcube[7]: <5t3h7> Failed login for bob from 203.0.113.9 in session 5t3h7 " +
				"(error: 0)",
		},
		"sogo-auth": {
			log + "sogod [7]: SOGoRootPage Login from '203.0.113.9' for user 'bob' might not " +
				"have worked - password policy: 65535  grace: -1  expire: -1  bound: 0",
		},
		"proftpd-auth": {
			log + "proftpd[7] ftp.example (a.example[203.0.113.9]): USER bob (Login failed): " +
				"Incorrect password",
			"2026-11-25 01:31:58,124 h proftpd[7] h (203.0.113.9[203.0.113.9]): USER bob: no " +
				"such user found from 203.0.113.9 [203.0.113.9] to ::ffff:192.0.2.21:21",
			log + "proftpd[7]: 192.0.2.21 (a[::ffff:203.0.113.9]) - Maximum login attempts (3) " +
				"exceeded, connection refused",
			log + "proftpd[7]: h (a[203.0.113.9]) - SECURITY VIOLATION: Root login attempted",
		},
		"vsftpd-auth": {
			`Wed Nov 25 01:31:58 2026 [pid 7] [bob] FAIL LOGIN: Client "::ffff:203.0.113.9"`,
			`Thu Nov  5 01:31:58 2026 [pid 7] [a b] FAIL LOGIN: Client "203.0.113.9", "User is ` +
				`not in the allow user list."`,
			`Thu Nov  5 01:31:58 2026 [pid 7] [bob] FTP response: Client "203.0.113.9", "530 ` +
				`Permission denied."`,
		},
		"pureftpd-auth": {
			log + "pure-ftpd: (?@203.0.113.9) [WARNING] Authentication failed for user [a b]",
		},
		"mysql-auth": {
			"2026-11-25T01:31:58.123456Z 7 [Note] [MY-010926] [Server] Access denied for user " +
				"'root'@'203.0.113.9' (using password: YES)",
			"2026-11-25  1:31:58 7 [Warning] Access denied for user 'root'@'203.0.113.9' (using " +
				"password: NO)",
			log + "mariadbd[7]: 2026-11-25  1:31:58 7 [Warning] Access denied for user " +
				"'root'@'203.0.113.9'",
			"261125  1:31:58 [Warning] Access denied for user ''@'203.0.113.9' (using " +
				"password: NO)",
		},
		"mysql-probe": {
			log + "mariadbd[7]: 2026-11-25  1:31:58 339 [Warning] Aborted connection 339 to db: " +
				"'unconnected' user: 'unauthenticated' host: '203.0.113.9' (This connection " +
				"closed normally without authentication)",
			"2026-11-25T01:31:58.123456Z 7 [Note] [MY-010914] [Server] Aborted connection 7 to " +
				"db: 'unconnected' user: 'unauthenticated' host: '2001:db8::9' (Got an error " +
				"reading communication packets).",
		},
		"asterisk-auth": {
			ast + "NOTICE[7] chan_sip.c: Registration from '\"7\" <sip:7@192.0.2.5>' failed for " +
				"'203.0.113.9:5060' - Wrong password",
			"[Nov 25 01:31:58] NOTICE[7]: res_pjsip/pjsip_distributor.c:676 log_failed_request: " +
				"Request 'REGISTER' from '<sip:7@192.0.2.5>' failed for '203.0.113.9:5060' " +
				"(callid: x) - Failed to authenticate",
			ast + "NOTICE[7]: res_pjsip/pjsip_distributor.c:688 log_failed_request: Request " +
				"'REGISTER' from '<sip:7@192.0.2.5>' failed for '[2001:db8::9]:5060' (callid: x) " +
				"- Failed to authenticate after 2 tries in 1.532 ms",
			ast + `SECURITY[7] res_security_log.c: SecurityEvent="ChallengeResponseFailed",` +
				`EventTV="2026-11-25T01:31:58.1+0100",` +
				`Severity="Error",Service="PJSIP",AccountID="7",` +
				`SessionID="x",LocalAddress="IPV4/UDP/192.0.2.5/5060",` +
				`RemoteAddress="IPV4/UDP/203.0.113.9/5060",Challenge="y"`,
			log + "asterisk[7]: NOTICE[8]: manager.c:1 in authenticate: 203.0.113.9 failed to " +
				"authenticate as 'admin'",
			ast + "NOTICE[7] chan_iax2.c: Host 203.0.113.9 failed MD5 authentication for 'x' " +
				"(a != b)",
		},
		"asterisk-probe": {
			ast + "NOTICE[7][C-0000001] chan_sip.c: Call from '' (203.0.113.9:5071) to extension " +
				"'+9' rejected because extension not found in context 'default'.",
			ast + "NOTICE[7]: res_pjsip_session.c:2337 new_invite: Call from 'x' " +
				"(TCP:[203.0.113.9]:61470) to extension '9' rejected because extension not found " +
				"in context 'default'.",
			ast + `WARNING[7][C-0000001d] Ext. s: "Rejecting unknown SIP connection from ` +
				`203.0.113.9"`,
			ast + "NOTICE[7] res_pjsip/pjsip_distributor.c: Request from '<sip:1@192.0.2.5>' " +
				"failed for '203.0.113.9:5089' (callid: a@203.0.113.9) - No matching endpoint " +
				"found",
			ast + "NOTICE[7]: res_pjsip/pjsip_distributor.c:688 log_failed_request: Request " +
				"'INVITE' from '\"100\" <sip:100@192.0.2.5>' failed for '203.0.113.9:5089' " +
				"(callid: x) - No matching endpoint found after 5 tries in 0.927 ms",
		},
		"proxmox-auth": {
			log + "pvedaemon[7]: authentication failure; rhost=::ffff:203.0.113.9 user=root@pam " +
				"msg=Authentication failure",
			log + "proxmox-backup-proxy[7]: authentication failure; rhost=[2001:db8::9]:4711 " +
				"user=root@pam msg=Permission denied (os error 13)",
		},
		"webmin-auth": {log + "webmin[7]: Invalid login as root from 203.0.113.9 "},
		"xrdp-auth": {
			"[20261125-01:31:58] [INFO ] AUTHFAIL: user=bob ip=::ffff:203.0.113.9 time=1",
			log + "xrdp-sesman[7]: AUTHFAIL: user=bob ip=203.0.113.9 time=1",
		},
		"znc-auth": {
			"[2026-11-25 01:31:58] [a b] failed to login from 203.0.113.9:65001",
			log + "znc[7]: [bob] failed to login from 203.0.113.9",
		},
		"ejabberd-auth": {
			"2026-11-25 01:31:58.773 [info] <0.6.0>@ejabberd_c2s:handle_auth_failure:433 " +
				"(http_bind|ejabberd_bosh) Failed c2s PLAIN authentication for a@b.example from " +
				"::FFFF:203.0.113.9: Invalid username or password",
			"2026-11-25 01:31:58.773000+01:00 [warning] (tls|<0.6.0>) Failed c2s PLAIN " +
				"authentication for a@b.example from 2001:db8::9: Invalid username or password",
		},
		"haproxy-401": {
			log + `haproxy[7]: 203.0.113.9:58430 [25/Nov/2026:01:31:58.608] main main/<NOSRV> ` +
				`-1/-1/-1/-1/0 401 248 - - PR-- 0/0/0/0/0 0/0 "GET / HTTP/1.1"`,
		},
		"haproxy-4xx": {
			log + `haproxy[7]: ::ffff:203.0.113.9:58430 [25/Nov/2026:01:31:58.608] main~ app/a ` +
				`0/0/1/2/3 404 248 - - ---- 1/1/0/0/0 0/0 "GET /x HTTP/1.1"`,
		},
		"haproxy-probe": {
			log + "haproxy[7]: 203.0.113.9:5 [25/Nov/2026:01:31:58.608] main/1: SSL handshake " +
				"failure",
			log + `haproxy[7]: 203.0.113.9:5 [25/Nov/2026:01:31:58.608] main main/<NOSRV> ` +
				`-1/-1/-1/-1/1 400 0 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>"`,
		},
		"rsync-auth": {
			"2026/11/25 01:31:58 [3904] auth failed on module data from UNKNOWN (203.0.113.9) " +
				"for bob: password mismatch",
			"2026/11/25 01:31:58 [3927] auth failed on module data from a.example (2001:db8::9) " +
				"for eve: no matching rule",
			log + "rsyncd[7]: auth failed on module data from a.example (203.0.113.9): " +
				"unauthorized user",
		},
		"rsync-probe": {
			"2026/11/25 01:31:58 [3983] unknown module 'no there' tried from UNKNOWN (203.0.113.9)",
			log + "rsyncd[7]: rsync denied on module data from a.example (203.0.113.9)",
		},
		"squid-auth": {
			"1764034318.729      0 203.0.113.9 TCP_DENIED/407 3945 CONNECT a.example:443 - " +
				"HIER_NONE/- text/html",
			"1764034318.729     12 2001:db8::9 TCP_DENIED/407 4027 GET http://a.example/ bob " +
				"HIER_NONE/- text/html",
		},
		"squid-denied": {
			"1764034318.729 123456 203.0.113.9 TCP_DENIED/403 3945 GET http://a.example/ - " +
				"HIER_NONE/- text/html",
		},
		"tinyproxy-denied": {
			"NOTICE    Nov 25 01:31:58.922 [4158]: Unauthorized connection from \"203.0.113.9\".",
			log + "tinyproxy[7]: Unauthorized connection from \"a.example\" [203.0.113.9].",
		},
		"nrpe-denied": {
			log + "nrpe[7]: Host 203.0.113.9 is not allowed to talk to us!",
		},
		"wordpress-auth": {
			log + "wordpress(shop.example)[7]: Authentication failure for bob from 203.0.113.9",
			log + "wordpress(shop.example)[7]: XML-RPC authentication attempt for unknown user a " +
				"b from 203.0.113.9",
			log + "wordpress(shop.example)[7]: Blocked user enumeration attempt from 203.0.113.9",
		},
		"drupal-auth": {
			log + "drupal: " +
				"https://a.example|1430068525|user|203.0.113.9|https://a.example/?q=user|" +
				"https://a.example/|0||Login attempt failed for bob.",
		},
		"phpmyadmin-auth": {
			log + "phpMyAdmin[7]: user denied: root (mysql-denied) from 203.0.113.9",
		},
		"gitea-auth": {
			"2026/11/25 01:31:58 ...ers/web/auth/auth.go:200:SignInPost() [I] Failed " +
				"authentication attempt for bob from 203.0.113.9:39522: user does not exist " +
				"[uid: 0, name: bob, keyid: 0]",
			log + "forgejo[7]: 2026/11/25 01:31:58 ...ers/web/auth/auth.go:268:SignInPost() [W] " +
				"Failed authentication attempt for bob from [2001:db8::9]:0: user's password is " +
				"invalid",
			"2026/11/25 01:31:58 ...rs/context/auth.go:60:Toggle() [I] Failed authentication " +
				"attempt for bob from 203.0.113.9:39522",
		},
		"gitlab-auth": {
			"2026-11-25T01:31:58.667Z: Failed Login: username=a b ip=203.0.113.9",
			`{"severity":"INFO","time":"2026-11-25T01:31:58.667Z","correlation_id":"x",` +
				`"message":"Failed Login: username=bob ip=203.0.113.9"}`,
		},
		"homeassistant-auth": {
			day + "WARNING (MainThread) [homeassistant.components.http.ban] Login attempt or " +
				"request with invalid authentication from a.example (203.0.113.9). (curl/8)",
			"2026-11-25 01:31:58.729 WARNING (MainThread) [homeassistant.components.http.ban] " +
				"Login attempt or request with invalid authentication from 203.0.113.9 " +
				"(203.0.113.9). Requested URL: '/auth/login_flow/x'. (curl/8)",
		},
		"jellyfin-auth": {
			"[2026-11-25 01:31:58.729 +01:00] [INF] [79] Jellyfin.Server.Implementations.Users." +
				`UserManager: Authentication request for "bob" has been denied (IP: ` +
				`"203.0.113.9").`,
		},
		"bitwarden-auth": {
			"2026-11-25 01:31:58.464 +01:00 [WRN] Failed login attempt, 2FA invalid. 203.0.113.9",
			log + "Bitwarden-Identity[1]: [Bit.Core.X] Failed login attempt. 203.0.113.9",
		},
		"guacamole-auth": {
			`01:31:58.907 [http-nio-8080-exec-10] WARN  o.a.g.r.auth.AuthenticationService - ` +
				`Authentication attempt from 203.0.113.9 for user "bob" failed.`,
			`WARNING: Authentication attempt from 203.0.113.9 for user "bob" failed.`,
		},
		"monit-auth": {
			log + "monit[811]: HttpRequest: access denied -- client 203.0.113.9: wrong password " +
				"for user 'bob'",
			log + "monit[811]: HttpRequest: access denied -- client 203.0.113.9: empty password",
			"[2026-11-25T01:31:58+0100] error    : HttpRequest: access denied -- client " +
				"[2001:db8::9]: unknown user 'bob'",
		},
		"murmur-auth": {
			"<W>2026-11-25 01:31:58.818 1 => <4:bob(-1)> Rejected connection from " +
				"203.0.113.9:29530: Invalid server password",
			"<W>2026-11-25 01:31:58.818 1 => <4:bob(-1)> Rejected connection from " +
				"[2001:db8::9]:2953: Wrong certificate or password for existing user",
		},
		"uptimekuma-auth": {
			"2026-11-25T01:31:58.098Z [AUTH] WARN: Incorrect username or password for user bob. " +
				"IP=203.0.113.9",
		},
		"keycloak-auth": {
			"2026-11-25 01:31:58,357 WARN  [org.keycloak.events] (executor-thread-31) " +
				"type=LOGIN_ERROR, realmId=main, clientId=shop, userId=null, " +
				"ipAddress=203.0.113.9, error=user_not_found, auth_method=openid-connect, " +
				"redirect_uri=https://shop.example/, username=bob",
			`2026-11-25 01:31:58,357 WARN  [org.keycloak.events] (executor-thread-31) ` +
				`type="LOGIN_ERROR", realmId="7fb3", realmName="main", clientId="shop", ` +
				`userId="bb28", ipAddress="2001:db8::9", error="invalid_user_credentials", ` +
				`auth_method="openid-connect", username="bob"`,
		},
		"immich-auth": {
			"[Nest] 7  - 11/25/2026, 1:31:58 AM    WARN [AuthService] Failed login attempt for " +
				"user bob@a.example from ip address 203.0.113.9",
			"\x1b[33m[Nest] 6  - \x1b[39m11/25/2026, 1:31:58 AM \x1b[33m   WARN\x1b[39m " +
				"\x1b[38;5;3m[Api:AuthService~x1] \x1b[39m\x1b[33mFailed login attempt for user " +
				"bob@a.example from ip address 203.0.113.9\x1b[39m",
		},
	} {
		for _, line := range lines {
			a, r := find(t, format, line)
			if s := a.String(); r != Matched || s != "203.0.113.9" && s != "2001:db8::9" {
				t.Errorf("%s: %d %s of %q", format, r, a, line)
			}
			if h, _ := Split([]byte(line), now); h.Time.IsZero() &&
				!strings.HasPrefix(format, "mysql-") &&
				format != "gitlab-auth" && format != "guacamole-auth" && format != "immich-auth" {
				t.Errorf("%s: no time of %q", format, line)
			}
		}
	}
}

// TestTheTimeOfALineOfJSON is the program's, whatever a client has put behind it. Numbers of
// seconds that something took were times of 1970, and such of milliseconds of the year 50,000.
func TestTheTimeOfALineOfJSON(t *testing.T) {
	of := time.Date(2026, 11, 25, 1, 31, 58, 0, time.UTC)
	for line, want := range map[string]time.Time{
		`{"time":"2026-11-25T01:31:58Z","msg":"no","body":{"ts":1000000001}}`: of,
		`{"level":30,"time":1795570318123,"msg":"no"}`:                        of,
		`{"ts":1795570318.25,"time":0.25}`:                                    of,
		`{"status":401,"time":0.25}`:                                          {},
		`{"status":401,"time":12}`:                                            {},
		`{"ts":99999999999999999999}`:                                         {},
		`{"ts":`:                                                              {},
		`{"ts":17`:                                                            {},
	} {
		if h, _ := Split([]byte(line), of); !h.Time.Equal(want) {
			t.Errorf("%s: %v, want %v", line, h.Time, want)
		}
	}
}

// isOfNoFormat tells of each pattern of the library that reads the line.
func isOfNoFormat(t *testing.T, line string) {
	t.Helper()
	for _, k := range Library() {
		if a, r := find(t, k.Name, line); r != Other {
			t.Errorf("%s: %d %s of %q", k.Name, r, a, line)
		}
	}
}

// TestWhatIsRefusedForATimeIsNoRefusal: as greylists do.
func TestWhatIsRefusedForATimeIsNoRefusal(t *testing.T) {
	for _, line := range []string{
		"2026-11-25 01:31:58 H=a.example [203.0.113.9] F=<a@b.example> temporarily rejected RCPT " +
			"<x@y.example>: greylisted",
		`2026-11-25 01:31:58 H=a.example [203.0.113.9]:5 temporarily rejected connection in ` +
			`"connect" ACL: too many`,
		"Nov 25 01:31:58 h sm-mta[7]: s1P81: ruleset=check_rcpt, arg1=<a@b.example>, " +
			"relay=[203.0.113.9], reject=451 4.7.1 Greylisting in action",
		"2026-11-25 01:31:58 login authenticator failed for (x) [203.0.113.9]: 435 Unable to " +
			"authenticate at present",
	} {
		isOfNoFormat(t, line)
	}
}

// TestWhatCouldNotBeAskedIsNoFailure: where what knows the passwords does not answer, or a client
// is asked to log in first, honest users are told so.
func TestWhatCouldNotBeAskedIsNoFailure(t *testing.T) {
	const (
		log = "Nov 25 01:31:58 mail "
		rc  = "[25-Nov-2026 01:31:58 +0100]: <5t3h7> "
	)
	for _, line := range []string{
		log + "imap[7]: badlogin: a.example [203.0.113.9] plaintext bob SASL(-1): generic " +
			"failure: checkpass failed",
		log + "sm-mta[7]: 06I02: AUTH failure (PLAIN): generic failure (-1) SASL(-1): generic " +
			"failure: checkpass failed, user=bob, relay=a.example [203.0.113.9]",
		rc + "IMAP Error: Login failed for bob against mail.example from 203.0.113.9. Could not " +
			"connect to mail.example:143: Connection refused in /x/rcube_imap.php on line 205",
		rc + "IMAP Error: Login failed for bob from 203.0.113.9(X-Real-IP: 198.51.100.7). " +
			"AUTHENTICATE PLAIN: A0002 NO [UNAVAILABLE] Temporary authentication failure.",
		rc + "Failed login for bob from 203.0.113.9 in session 5t3h7 (error: 3)", // no cookies
		`Thu Nov  5 01:31:58 2026 [pid 7] FTP response: Client "203.0.113.9", "530 Please login ` +
			`with USER and PASS."`,
		`Thu Nov  5 01:31:58 2026 [pid 7] [bob] FTP response: Client "203.0.113.9", "530 Please ` +
			`login with USER and PASS."`,
		"[2026-11-25 01:31:58] NOTICE[7] res_pjsip/pjsip_distributor.c: Request 'REGISTER' from " +
			"'<sip:1@192.0.2.5>' failed for '203.0.113.9:5089' (callid: x) - Error to authenticate",
		"2026-11-25  1:31:58 339 [Warning] Aborted connection 339 to db: 'unconnected' user: " +
			"'unauthenticated' host: '203.0.113.9' (Too many connections)",
	} {
		isOfNoFormat(t, line)
	}
}

// TestLongLinesHideNobody: what a client writes behind its address, in whatever number, does not
// make a line ambiguous where the pattern has no such text before the address.
func TestLongLinesHideNobody(t *testing.T) {
	for _, behind := range []string{strings.Repeat("&a=%20", 2000), strings.Repeat("a ", 5000),
		strings.Repeat("192.0.2.1 ", 1500), strings.Repeat(":", 12000)} {
		for _, before := range []string{"", "shop.example "} {
			line := before + `203.0.113.9 - - [25/Nov/2026:01:31:58 +0100] "GET /` + behind +
				`HTTP/1.1" 404 153 "-" "x"`
			if a, r := find(t, "nginx-404", line); r != Matched || a.String() != "203.0.113.9" {
				t.Errorf("%d %s of %.120q", r, a, line)
			}
		}
	}
	if ends := nameEnds([]byte(strings.Repeat(":", MaxMessage)), 0); len(ends) > maxName+1 {
		t.Errorf("a name may end at %d places", len(ends))
	}
}
