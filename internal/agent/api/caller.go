package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	cookieName = "levee-session"
	// over TLS a browser holds a name of this kind to one host (RFC 6265bis, section 4.1.3.2)
	secureCookie = "__Host-" + cookieName
	sessionLasts = 7 * 24 * time.Hour
)

// identify says who asks. Somebody without a token is anybody; a wrong token is an error.
func (s *Server) identify(r *http.Request) (Caller, error) {
	if p, _ := r.Context().Value(peerKey{}).(peer); p.local {
		c := Caller{Name: "uid " + strconv.FormatUint(uint64(p.uid), 10), Role: Anybody,
			From: "unix"}
		if p.uid == 0 {
			c.Name, c.Role = "root", Admin
		}
		return c, nil
	}
	anybody := Caller{Role: Anybody, From: r.RemoteAddr}
	if s.opts.Tokens == nil {
		return anybody, nil
	}
	var t *Token
	var err error
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, text, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return anybody, errors.New("the header Authorization is to be: Bearer TOKEN")
		}
		t, err = s.opts.Tokens.find(strings.TrimSpace(text))
	} else if c, cerr := r.Cookie(cookieOf(r)); cerr == nil {
		now, err := s.opts.Tokens.session(c.Value)
		if err != nil {
			return anybody, nil // the page may still be had, and asks for a token
		}
		t = now.Token
	}
	if t == nil || err != nil {
		return anybody, err
	}
	return t.caller(r.RemoteAddr), nil
}

func (t *Token) caller(from string) Caller {
	c := Caller{Name: t.Name, Role: t.Role, From: from}
	if !t.Expires.IsZero() {
		c.Expires = &t.Expires
	}
	return c
}

func cookieOf(r *http.Request) string {
	if r.TLS != nil {
		return secureCookie
	}
	return cookieName
}

type requestKey struct{}

type loginInput struct {
	Body struct {
		Token string `json:"token" minLength:"1" maxLength:"100" doc:"As levee agent token add printed it."`
	}
}

type cookieOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      Caller
}

func (s *Server) login(ctx context.Context, in *loginInput) (*cookieOutput, error) {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	if s.opts.Tokens == nil || r == nil {
		return nil, Refuse(http.StatusUnauthorized, "there are no tokens here: the unix socket "+
			"needs none")
	}
	t, err := s.opts.Tokens.find(in.Body.Token)
	if err != nil {
		return nil, Refuse(http.StatusUnauthorized, "%v", err)
	}
	return s.sessionFor(r, t, newNonce())
}

// sessionFor gives a session a cookie that lasts as long as one may.
func (s *Server) sessionFor(r *http.Request, t *Token, nonce string) (*cookieOutput, error) {
	until := time.Now().Add(sessionLasts)
	if !t.Expires.IsZero() && t.Expires.Before(until) {
		until = t.Expires
	}
	value, err := s.opts.Tokens.cookie(t, until, nonce)
	if err != nil {
		return nil, err
	}
	c := cookie(r, value)
	c.Expires = until
	return &cookieOutput{c, t.caller(r.RemoteAddr)}, nil
}

// renew puts the end of a session off, for a page that stays open on a wall.
func (s *Server) renew(ctx context.Context, _ *struct{}) (*cookieOutput, error) {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	if s.opts.Tokens == nil || r == nil {
		return nil, Refuse(http.StatusNotFound, "there are no sessions here")
	}
	had, err := r.Cookie(cookieOf(r))
	if err != nil {
		return nil, Refuse(http.StatusNotFound, "there is no session: a token was given with the "+
			"request")
	}
	now, err := s.opts.Tokens.session(had.Value)
	if err != nil {
		return nil, Refuse(http.StatusNotFound, "%v", err)
	}
	return s.sessionFor(r, now.Token, now.nonce)
}

func (s *Server) logout(ctx context.Context, _ *struct{}) (*cookieOutput, error) {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	if r == nil {
		return nil, errors.New("log out of nothing")
	}
	if had, err := r.Cookie(cookieOf(r)); err == nil && s.opts.Tokens != nil {
		if err := s.opts.Tokens.end(had.Value); err != nil {
			s.opts.Log("the session of %s has ended until the agent is started anew: %v",
				r.RemoteAddr, err)
		}
	}
	c := cookie(r, "")
	c.MaxAge = -1
	return &cookieOutput{c, Caller{Role: Anybody, From: r.RemoteAddr}}, nil
}

// cookie is one that scripts cannot read, and that no other site makes a browser send.
func cookie(r *http.Request, value string) http.Cookie {
	return http.Cookie{Name: cookieOf(r), Value: value, Path: "/", HttpOnly: true,
		Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode}
}
