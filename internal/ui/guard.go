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

// guard admits only requests with the token from a page of this server. Other users of the machine can also connect to
// the server, and a foreign web page can make a browser connect to it, under a DNS name that resolves to 127.0.0.1.
type guard struct {
	token  string
	hosts  []string // The allowed values of the header Host.
	cookie string   // The name of the cookie. It contains the port, because servers on other ports have their own cookie.
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

// newToken returns 256 random bits.
func newToken() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// tokenParameter is the parameter of the first address that has the token.
const tokenParameter = "token"

// contentPolicy is the Content-Security-Policy of all pages: only content from this server.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protect returns a handler that rejects requests without access, and passes the others to next.
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

// own reports whether a request comes from a page of this server, or directly from the user.
func (g *guard) own(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin != "" && origin != "http://"+r.Host {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	default: // A link on a foreign page may lead here, because the browser does not send the cookie with it.
		return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	}
}

// exchange stores the token of an address in a cookie, so that the token is neither in the history nor in a copied
// address.
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
	// A browser that a foreign page led here would not send the cookie after a redirect. It does send it after a link
	// on this page.
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := templates.ExecuteTemplate(w, "entrance", to.RequestURI()); err != nil {
		return // The browser has closed the connection.
	}
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// refuse rejects a request without giving a reason.
func refuse(w http.ResponseWriter) { http.Error(w, "forbidden", http.StatusForbidden) }
