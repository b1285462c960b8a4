package ui

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"refract.dev/fleet/offline/manifest"
)

// shown returns a server that shows the content of these files.
func shown(t *testing.T, files ...string) *Server {
	t.Helper()
	set, problems := manifest.Read(files, nil)
	for _, p := range problems {
		t.Fatal(p)
	}
	documents, _ := manifest.Documents(files, nil)
	s, err := Listen(0, testr.New(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.listener.Close() })
	is, err := NewSnapshot(&Input{Origin: "files", Set: set, Problems: problems, Documents: documents, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	s.Show(is)
	return s
}

// ask sends a request with the token, as a browser would. The functions in change modify the request.
func ask(t *testing.T, s *Server, method, address, body string, change ...func(*http.Request)) (code int, text string, header http.Header) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	r.Host = s.listener.Addr().String()
	r.AddCookie(&http.Cookie{Name: s.guard.cookie, Value: s.guard.token})
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	answer, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(answer), w.Header()
}

var examples = []string{
	"../../examples/override/namespace.yaml", "../../examples/override/clusters.yaml", "../../examples/override/shop", "../../examples/release/front.yaml",
	"../../examples/injection/shop", "../../examples/conversion/move",
}

// TestPages: every page exists and shows what it is about.
func TestPages(t *testing.T) {
	s := shown(t, examples...)
	for address, wants := range map[string][]string{
		"/": {"<h1>Fleet</h1>", "my-nginx", "member-1", "on 3 clusters"},
		"/?q=my-nginx&ns=shop&kind=Deployment&state=right": {"1 object on 3 clusters"},
		"/?l=region%3Deu&each=1":                           {"Fleet", "member-"},
		"/?l=%21%21":                                       {`role="alert"`, "labels of clusters"},
		"/?q=nothing-at-all":                               {"The filter matches none of"},
		"/?row=99999&col=99999":                            {"my-nginx"},
		"/object/Deployment.apps/shop/my-nginx":            {"Deployment shop/my-nginx", "OverridePolicy shop/my-nginx-replicas rule 0 jsonpatch[0]", "replicas: 1"},
		"/object/Deployment.apps/shop/checkout?c=member-2&with=member-1": {"checkout:2.0.0", "checkout:1.9.3", `class="by differs"`, "Final value"},
		"/object/Deployment.apps/shop/checkout?c=no-such-cluster":        {"the object is not placed there"},
		"/policies": {"OverridePolicy shop/checkout-release", "RolloutPolicy shop/careful"},
		"/policy/OverridePolicy/shop/checkout-release": {"named by", "Rules", "textarea", "overrideRules"},
		"/policy/RolloutPolicy/shop/careful":           {"RolloutPolicy shop/careful", "canary"},
		"/rollouts":                                    {"Files have no status of rollouts"},
		"/clusters":                                    {"3 clusters", "member-3", "region="},
		"/services":                                    {"ServiceInjectionPolicy", "shop/database"},
		"/definitions":                                 {"Try an object"},
	} {
		code, text, header := ask(t, s, http.MethodGet, address, "")
		if code != http.StatusOK {
			t.Errorf("%s: got status %d: %s", address, code, text)
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: want %q in\n%s", address, want, text)
			}
		}
		if got := header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'") {
			t.Errorf("%s: want a policy of contents, got %q", address, got)
		}
	}
	for address, want := range map[string]int{
		"/object/Deployment.apps/shop/none": http.StatusNotFound, "/policy/OverridePolicy/shop/none": http.StatusNotFound,
		"/nothing": http.StatusNotFound, "/assets/style.css": http.StatusOK, "/assets/page.js": http.StatusOK, "/assets/none": http.StatusNotFound,
		"/assets/..%2fserver.go": http.StatusNotFound,
	} {
		if code, text, _ := ask(t, s, http.MethodGet, address, ""); code != want {
			t.Errorf("%s: got status %d, want %d: %s", address, code, want, text)
		}
	}
}

// TestLeftFields: the page of an object names the fields that are left to the clusters. No policy is involved, so the
// page has no link to a policy.
func TestLeftFields(t *testing.T) {
	s := shown(t, "../../examples/exported/service.yaml")
	code, text, _ := ask(t, s, http.MethodGet, "/object/Service/shop/front", "")
	if code != http.StatusOK || !strings.Contains(text, "left to the cluster: assigned by the hub") || strings.Contains(text, `href="/policy//`) {
		t.Errorf("want the field and no link, got status %d: %s", code, text)
	}
}

// TestWhoMayAsk: the server rejects requests without the token, with another host name, or from another site. It does
// not disclose the reason.
func TestWhoMayAsk(t *testing.T) {
	s := shown(t, examples...)
	without := func(r *http.Request) { r.Header.Del("Cookie") }
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	own := "http://" + s.listener.Addr().String()
	for name, tc := range map[string]struct {
		method, address string
		change          []func(*http.Request)
		want            int
	}{
		"Token":           {http.MethodGet, "/", nil, http.StatusOK},
		"None":            {http.MethodGet, "/", []func(*http.Request){without}, http.StatusForbidden},
		"NoneForAssets":   {http.MethodGet, "/assets/style.css", []func(*http.Request){without}, http.StatusForbidden},
		"NoneForEvents":   {http.MethodGet, "/events", []func(*http.Request){without}, http.StatusForbidden},
		"Wrong":           {http.MethodGet, "/", []func(*http.Request){without, set("Cookie", s.guard.cookie+"=guess")}, http.StatusForbidden},
		"WrongInAddress":  {http.MethodGet, "/?token=guess", []func(*http.Request){without}, http.StatusForbidden},
		"InAddress":       {http.MethodGet, "/?token=" + s.guard.token, []func(*http.Request){without}, http.StatusOK},
		"OtherCookie":     {http.MethodGet, "/", []func(*http.Request){without, set("Cookie", "refract-ui-1="+s.guard.token)}, http.StatusForbidden},
		"Host":            {http.MethodGet, "/", []func(*http.Request){func(r *http.Request) { r.Host = "evil.example" }}, http.StatusForbidden},
		"HostOfOtherPort": {http.MethodGet, "/", []func(*http.Request){func(r *http.Request) { r.Host = "127.0.0.1:1" }}, http.StatusForbidden},
		"HostAndToken":    {http.MethodGet, "/?token=" + s.guard.token, []func(*http.Request){func(r *http.Request) { r.Host = "evil.example:80" }}, http.StatusForbidden},
		"Origin":          {http.MethodPost, "/whatif", []func(*http.Request){set("Origin", "http://evil.example")}, http.StatusForbidden},
		"OriginNull":      {http.MethodPost, "/whatif", []func(*http.Request){set("Origin", "null")}, http.StatusForbidden},
		"OwnOrigin":       {http.MethodPost, "/whatif", []func(*http.Request){set("Origin", own), set("Sec-Fetch-Site", "same-origin")}, http.StatusOK},
		"CrossSite":       {http.MethodGet, "/", []func(*http.Request){set("Sec-Fetch-Site", "cross-site"), set("Sec-Fetch-Mode", "no-cors")}, http.StatusForbidden},
		"CrossSitePost":   {http.MethodPost, "/whatif", []func(*http.Request){set("Sec-Fetch-Site", "cross-site"), set("Sec-Fetch-Mode", "navigate")}, http.StatusForbidden},
		"Link":            {http.MethodGet, "/?token=" + s.guard.token, []func(*http.Request){without, set("Sec-Fetch-Site", "cross-site"), set("Sec-Fetch-Mode", "navigate")}, http.StatusOK},
		"SameSite":        {http.MethodGet, "/", []func(*http.Request){set("Sec-Fetch-Site", "same-site"), set("Sec-Fetch-Mode", "cors")}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			code, text, header := ask(t, s, tc.method, tc.address, "", tc.change...)
			if code != tc.want {
				t.Errorf("got status %d, want %d", code, tc.want)
			}
			if code == http.StatusForbidden && (text != "forbidden\n" || header.Get("Set-Cookie") != "") {
				t.Errorf("want nothing to be told, got %q %v", text, header)
			}
			if cookie := header.Get("Set-Cookie"); cookie != "" && (!strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict")) {
				t.Errorf("want a cookie that nobody else gets, got %s", cookie)
			}
		})
	}
}

// TestListensHere: other machines cannot reach the server.
func TestListensHere(t *testing.T) {
	s := shown(t, examples...)
	if got := s.listener.Addr().String(); !strings.HasPrefix(got, "127.0.0.1:") {
		t.Errorf("it listens on %s", got)
	}
	if u, err := url.Parse(s.Address()); err != nil || len(u.Query().Get("token")) < 40 {
		t.Errorf("want an address with a token, got %s, %v", s.Address(), err)
	}
}

// TestBounds: the server does not read requests that are too large.
func TestBounds(t *testing.T) {
	s := shown(t, examples...)
	large := "policy=" + strings.Repeat("x", 2<<20)
	if code, _, _ := ask(t, s, http.MethodPost, "/whatif", large); code != http.StatusBadRequest {
		t.Errorf("what if: got status %d", code)
	}
	if code, _, _ := ask(t, s, http.MethodPost, "/definitions", strings.Replace(large, "policy", "object", 1)); code != http.StatusBadRequest {
		t.Errorf("definitions: got status %d", code)
	}
	for i := range mostEvents {
		s.told = i + 1
	}
	if code, _, _ := ask(t, s, http.MethodGet, "/events", ""); code != http.StatusServiceUnavailable {
		t.Errorf("with %d pages open: got status %d", mostEvents, code)
	}
}

// TestWhatIf: the answer describes the effect of the policy, or the errors in the text.
func TestWhatIf(t *testing.T) {
	s := shown(t, examples...)
	is := s.now.Load()
	text := is.policy("OverridePolicy", "shop", "my-nginx-replicas").Text
	for name, tc := range map[string]struct{ text, want string }{
		"Same":    {text, "Nothing changes."},
		"Changed": {strings.Replace(text, "value: 7", "value: 8", 1), "/spec/replicas 7 → 8"},
		"Broken":  {text + "\n  : :", "stdin:"},
		"Empty":   {"", "stdin"},
		"Unknown": {strings.Replace(text, "overriders", "overrider", 1), "overrider"},
	} {
		t.Run(name, func(t *testing.T) {
			code, got, _ := ask(t, s, http.MethodPost, "/whatif", url.Values{"policy": {tc.text}}.Encode())
			if code != http.StatusOK || !strings.Contains(got, tc.want) {
				t.Errorf("got status %d, and want %q in\n%s", code, tc.want, got)
			}
		})
	}
}
