package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// guard accepts only requests that have the token of this server. This is necessary because other users of the machine
// can connect to the server. A web page of another site can also make a browser connect to it, by a DNS name that
// resolves to 127.0.0.1.
type guard struct {
	token  string
	hosts  []string // The accepted values of the header Host.
	cookie string   // The name of the cookie. It contains the port, because browsers send cookies to all ports of a host.
}

func newGuard(address net.Addr) *guard {
	port := 0
	if tcp, ok := address.(*net.TCPAddr); ok {
		port = tcp.Port
	}
	n := strconv.Itoa(port)
	return &guard{
		token: newToken(), cookie: "refract-ui-" + n,
		hosts: []string{net.JoinHostPort("127.0.0.1", n), net.JoinHostPort("localhost", n), net.JoinHostPort("::1", n)},
	}
}

// newToken returns 256 random bits as text.
func newToken() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// tokenParameter is the name of the parameter that has the token, in the first address that the browser opens.
const tokenParameter = "token"

// contentPolicy is the Content-Security-Policy of all pages. It allows only content from this server.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protect returns a handler that passes accepted requests to next, and rejects all others.
func (g *guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !slices.Contains(g.hosts, r.Host) || !g.own(r) {
			refuse(w)
			return
		}
		if given := r.URL.Query().Get(tokenParameter); given != "" && r.Method == http.MethodGet {
			g.exchange(w, r, given)
			return
		}
		if c, err := r.Cookie(g.cookie); err != nil || !same(c.Value, g.token) {
			refuse(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// own reports whether a request comes from a page of this server or directly from the user, and not from another site.
func (g *guard) own(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin != "" && origin != "http://"+r.Host {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	default: // Links from other sites are accepted here: the browser does not send the cookie with them, so they are rejected later.
		return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	}
}

// exchange puts the token into a cookie. So the token is not in addresses that are in the browser's history or that a
// user copies.
func (g *guard) exchange(w http.ResponseWriter, r *http.Request, given string) {
	if !same(given, g.token) {
		refuse(w)
		return
	}
	//nolint:gosec // There is no TLS on 127.0.0.1.
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	q := r.URL.Query()
	q.Del(tokenParameter)
	to := url.URL{Path: r.URL.Path, RawQuery: q.Encode()}
	// After a redirect, the browser would not send the cookie if the user came here by a link from another site. It
	// sends the cookie if the user follows a link on this page.
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := templates.ExecuteTemplate(w, "entrance", to.RequestURI()); err != nil {
		return // The browser has already closed the connection.
	}
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// refuse rejects a request. It does not disclose the reason.
func refuse(w http.ResponseWriter) { http.Error(w, "forbidden", http.StatusForbidden) }
